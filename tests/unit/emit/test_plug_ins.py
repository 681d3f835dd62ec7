"""Kinds of `emit` that an installed extension adds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from uv import find_uv_bin

import fleetbuild
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.command_line import run_fleetbuild
from tests.factories.files import make_wheel
from tests.factories.plans import make_plan

MODULE = b'''
"""What a user of fleetbuild could write."""
from typing import Annotated

import typer

from fleetbuild import EmitKind, Emission, EmittedFiles, UsageError
from fleetbuild.extension import Extension


class Hosts(Extension):
    def emit_kinds(self):
        names = {"hosts": "hosts", "broken": "gone", "k8s": "k8s"}
        return [EmitKind(name, f"host_lists:{names[name]}") for name in names]


extension = Hosts()


def hosts(
    emission: Emission,
    *,
    region: Annotated[str, typer.Option(help="Where the nodes stand.")] = "eu",
) -> EmittedFiles:
    """Write the hosts of each group as a list."""
    if region == "moon":
        raise UsageError("Nobody is there.", "Name another region.")
    files = {f"{group.name}.txt": f"{region}: {' '.join(group.nodes)}\\n"
             for group in emission.plan.groups}
    return EmittedFiles(files, ("It is a list.",))


def k8s(emission: Emission) -> EmittedFiles:
    return EmittedFiles({"stolen.txt": ""})
'''
ENTRY_POINTS = b"""\
[fleetbuild.extensions]
hosts = host_lists:extension
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution, as an installer puts it there."""
    folder = tmp_path_factory.mktemp("plug-in")
    files = {
        "host_lists.py": MODULE,
        "host_lists-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
    }
    wheel = make_wheel(folder, "host_lists", "1.0", files=files)
    subprocess.run(
        [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--offline",
         "--target", folder / "site", wheel],
        check=True, cwd=folder,
    )  # fmt: skip
    return folder / "site"


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    fleetbuild.save_plan(with_digest(make_plan()), tmp_path / ".fleetbuild" / "plan.json")
    return tmp_path


def run(installed: Path, planned: Path, *words: str) -> subprocess.CompletedProcess[str]:
    about = {"PYTHONPATH": str(installed), "COLUMNS": "100"}
    return run_fleetbuild("emit", *words, here=planned, code=None, **about)


def test_a_plug_in_is_a_command_with_its_own_options(installed: Path, planned: Path) -> None:
    help_ = run(installed, planned, "--help").stdout
    assert "hosts       Write the hosts of each group as a list." in help_
    assert "broken      The kind broken of emit cannot be loaded" in help_
    options = run(installed, planned, "hosts", "--help").stdout
    assert "--region " in options
    assert "Where the nodes stand." in options
    assert "--state-dir" in options
    done = run(installed, planned, "hosts", "--region", "us", "--json")
    document = json.loads(done.stdout)
    (group,) = make_plan().groups
    assert document["files"] == [f".fleetbuild/manifests/hosts/{group.name}.txt"]
    assert document["warnings"] == ["It is a list."]
    text = (planned / document["files"][0]).read_text()
    assert text == f"us: {' '.join(group.nodes)}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hosts", "--region", "moon"), "error: Nobody is there."),
        (("hosts", "--way", "init"), "error: --way does not go with emit hosts."),
        (
            ("broken",),
            "error: The kind broken of emit cannot be loaded from host_lists:gone: AttributeError",
        ),
        (
            ("nobody",),
            "rbac, labeller, policy, windows, broken, builds, dra, flox, hosts, kueue, nfd, nix",
        ),
    ],
)
def test_a_wrong_use_of_a_plug_in_is_a_usage_error(
    installed: Path, planned: Path, words: tuple[str, ...], message: str
) -> None:
    done = run(installed, planned, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "\nfix: " in done.stderr


def test_a_plug_in_does_not_replace_a_kind_of_ours(installed: Path, planned: Path) -> None:
    files = json.loads(run(installed, planned, "k8s", "--json").stdout)["files"]
    assert ".fleetbuild/manifests/k8s/kustomization.yaml" in files
    assert not any("stolen" in file for file in files)
