"""`fleetbuild emit`: which files it writes where, and which options go together."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.testing import Result

import fleetbuild
from fleetbuild.plan.document.serialize import with_digest
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel
from tests.factories.plans import make_plan

Run = Callable[..., Result]
PREFIX = ("--image-prefix", "registry.example.com/team/fleet")
URL = ("--index-url", "http://wheels.example.com:8000")


@pytest.fixture
def planned(here: Path) -> Path:
    """A state directory with a plan of one group."""
    fleetbuild.save_plan(with_digest(make_plan()), here / ".fleetbuild" / "plan.json")
    return here / ".fleetbuild"


@pytest.fixture
def stocked(planned: Path, tmp_path: Path) -> Path:
    """And with its wheel in the store."""
    wheel = make_wheel(tmp_path, "hnswlib", "0.8.0+cpu.avx2", "cp311-cp311-linux_x86_64")
    (group,) = make_plan().groups
    Store(planned / "store").add(wheel, group.wheels[0], built_on="a", seconds=1)
    return planned


def test_a_plan_whose_groups_are_all_blocked_is_made_again(run: Run, here: Path) -> None:
    plan = with_digest(make_plan(groups=()))
    fleetbuild.save_plan(plan, here / ".fleetbuild" / "plan.json")
    result = run("emit", "nix")
    assert result.exit_code == 4
    assert "Every group is blocked.\nfix: Plan again: fleetbuild plan" in result.stderr


def written(result: Result, planned: Path) -> list[str]:
    assert result.exit_code == 0, result.stderr
    folder = planned / "manifests"
    files = json.loads(result.stdout)["files"]
    return [str((planned.parent / file).relative_to(folder)) for file in files]


def test_workloads_are_written_for_each_way_and_kind(run: Run, planned: Path) -> None:
    files = written(run("emit", "k8s", "--json"), planned)
    assert "k8s/deployment-cpu-avx2-cp311.yaml" in files
    files = written(
        run("emit", "k8s", "--way", "image", "--kind", "job", *PREFIX, "--json"), planned
    )
    text = (planned / "manifests/k8s/job-cpu-avx2-cp311.yaml").read_text()
    pod = yaml.safe_load(text)["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith(f"{PREFIX[1]}:cpu-avx2-cp311-")
    files = written(run("emit", "kustomize", "--kind", "daemonset", "--json"), planned)
    assert "kustomize/overlays/cpu-avx2-cp311/patch.yaml" in files


def test_images_are_built_from_what_lies_beside_their_containerfile(
    run: Run, stocked: Path
) -> None:
    files = written(run("emit", "containers", *PREFIX, "--json"), stocked)
    group = stocked / "manifests" / "containers" / "cpu-avx2-cp311"
    assert "containers/build.sh" in files
    (wheel,) = (group / "files").glob("*.whl")
    assert zipfile.is_zipfile(wheel)
    assert (group / "Containerfile").is_file()
    assert "hnswlib==0.8.0+cpu.avx2 --hash=sha256:" in (group / "requirements.txt").read_text()


@pytest.mark.parametrize(
    ("what", "files"),
    [
        ("nix", ["release.nix", "from-source.nix"]),
        (
            "flox",
            [
                ".flox/env.json",
                ".flox/env/manifest.toml",
                ".flox/pkgs/hnswlib-cpu-avx2-cp311.nix",
                "requirements.txt",
            ],
        ),
    ],
)
def test_nix_and_flox_get_the_wheels_beside_their_files(
    run: Run, stocked: Path, what: str, files: list[str]
) -> None:
    names = written(run("emit", what, "--json"), stocked)
    folder = f"{what}/cpu-avx2-cp311"
    assert {f"{folder}/{name}" for name in files} <= {*names}
    (wheel,) = (stocked / "manifests" / folder / "files").glob("*.whl")
    assert zipfile.is_zipfile(wheel)
    refused = run("emit", what, "--way", "image")
    assert (refused.exit_code, "does not go with" in refused.stderr) == (2, True)


@pytest.mark.usefixtures("planned")
def test_emit_nix_needs_stored_wheels(run: Run) -> None:
    refused = run("emit", "nix")
    assert refused.exit_code == 4
    assert "so no Nix expression can be written" in refused.stderr


def test_an_init_container_installs_the_stored_wheels(run: Run, stocked: Path) -> None:
    assert run("emit", "k8s", "--way", "init", *URL).exit_code == 0
    text = (stocked / "manifests/k8s/deployment-cpu-avx2-cp311.yaml").read_text()
    assert "--index-url=http://wheels.example.com:8000/cpu-avx2-cp311/simple/" in text


def test_without_wheels_nothing_can_be_installed_or_built(run: Run, planned: Path) -> None:
    result = run("emit", "k8s", "--way", "init", *URL, "--json")
    (sentence,) = json.loads(result.stdout)["warnings"]
    assert sentence.startswith("cpu-avx2-cp311: the store does not hold its wheels")
    assert sentence in run("emit", "k8s", "--way", "init", *URL).stderr
    refused = run("emit", "containers", *PREFIX)
    assert refused.exit_code == 4
    assert "fleetbuild apply" in refused.stderr
    del planned


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("k8s", "--way", "image"), "--image-prefix registry"),
        (("k8s", "--way", "volume"), "--image-prefix registry"),
        (("k8s", "--way", "init"), "fleetbuild store export"),
        (("containers",), "--image-prefix registry"),
        (("k8s", *PREFIX), "--image-prefix does not go with emit k8s --way hostpath"),
        (("k8s", *URL), "--index-url does not go with emit k8s --way hostpath"),
        (("k8s", "--way", "image", *PREFIX, "--image", "i"), "--image does not go with"),
        (("nfd", "--way", "init"), "--way does not go with emit nfd"),
        (("labels", "--kind", "job"), "--kind does not go with emit labels"),
        (("k8s", "--way", "image", "--image-prefix", "A B"), "is not a valid repository"),
    ],
)
def test_conflicting_options_are_refused(
    run: Run, stocked: Path, words: tuple[str, ...], sentence: str
) -> None:
    result = run("emit", *words)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "fix: " in result.stderr
    assert "Traceback" not in result.stderr
    assert not (stocked / "manifests").exists()
