"""One machine without an inventory: which is meant, where its release goes, how it is used."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import fleetbuild
from fleetbuild import this_machine
from fleetbuild.cli import app
from fleetbuild.cli.commands.env import Format, _place
from fleetbuild.models import Become, Config, Inventory, Login, Node
from fleetbuild.this_machine import (
    default_inventory,
    installed_release,
    is_this_machine,
    local_hosts,
    with_users_folder,
)
from tests.factories.command_line import run_fleetbuild

HERE = Inventory(
    source="localhost,",
    nodes=(Node(name="localhost", login=Login(host="localhost", connection="local")),),
)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a home, without rights to write anywhere else."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.delenv(f"XDG_{name}_HOME", raising=False)
    monkeypatch.setattr(this_machine, "may_write", lambda path: path.is_relative_to(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path / ".local/share/fleetbuild"


def release(folder: Path, name: str = "default", release_id: str = "0a1b") -> Path:
    """A current release in an install path."""
    root = folder if name == "default" else folder / name
    made = root / "releases" / release_id
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(sys.executable)
    greet = made / "bin" / "greet"
    greet.write_text('#!/bin/sh\necho "$1 from $VIRTUAL_ENV"\n')
    greet.chmod(0o755)
    (made / "manifest.json").write_text(json.dumps({"release": name}))
    (root / "current").unlink(missing_ok=True)
    (root / "current").symlink_to(f"releases/{release_id}")
    return made


def test_an_inventory_beside_comes_before_this_machine(tmp_path: Path) -> None:
    assert default_inventory(tmp_path) == "localhost,"
    (tmp_path / "hosts.ini").write_text("w1\n")
    assert default_inventory(tmp_path) == str(tmp_path / "hosts.ini")
    (tmp_path / "inventory.yml").write_text("all: {hosts: {w1: {}}}\n")
    assert default_inventory(tmp_path) == str(tmp_path / "inventory.yml")


@pytest.mark.parametrize(
    ("source", "local", "alone"),
    [
        ("localhost,", ("localhost",), True),
        ("127.0.0.1, ::1", ("127.0.0.1", "::1"), True),
        ("localhost,w1", ("localhost",), False),
        ("localhost", (), False),
        ("w1,", (), False),
        (",", (), False),
    ],
)
def test_localhost_in_a_list_of_hosts_is_this_machine(
    source: str, local: tuple[str, ...], alone: bool
) -> None:
    assert local_hosts(source) == local
    assert is_this_machine(source) is alone


def test_localhost_is_reached_without_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = fleetbuild.read_inventory("localhost,w1").nodes
    assert {node.name: node.login.connection for node in nodes} == {
        "localhost": "local",
        "w1": "ssh",
    }


def test_without_rights_releases_go_to_the_users_data_folder(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path(config: Config = Config(), inventory: Inventory = HERE, become: bool = False) -> str:  # noqa: B008
        return with_users_folder(config, inventory, may_become=become).install.path

    assert path() == str(user)
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert path() == "/srv/data/fleetbuild"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert path() == str(user)
    assert path(Config.model_validate({"install": {"path": "/opt/ours"}})) == "/opt/ours"
    assert path(become=True) == "/opt/fleetbuild"
    root = HERE.nodes[0].model_copy(update={"login": Login(host="localhost", become=Become())})
    assert path(inventory=HERE.model_copy(update={"nodes": (root,)})) == "/opt/fleetbuild"
    assert path(inventory=HERE.model_copy(update={"source": "w1,"})) == "/opt/fleetbuild"
    monkeypatch.setattr(this_machine, "may_write", lambda _: True)
    assert path() == "/opt/fleetbuild"


def test_a_home_with_odd_characters_is_refused(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(user / "a b"))
    with pytest.raises(fleetbuild.UsageError, match="characters that a release's path cannot have"):
        with_users_folder(Config(), HERE, may_become=False)


def test_the_users_own_release_comes_before_the_systems(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "INSTALL_PATH", str(tmp_path / "opt"))
    with pytest.raises(fleetbuild.BlockedError, match=f"not in {user} or {tmp_path}/opt, and no"):
        installed_release()
    systems = release(tmp_path / "opt")
    assert installed_release().path == systems
    own = release(user)
    assert installed_release().path == own
    with pytest.raises(fleetbuild.BlockedError, match="release called other"):
        installed_release("other")
    with pytest.raises(fleetbuild.UsageError):
        installed_release("../up")
    (own / "manifest.json").unlink()
    assert installed_release().path == systems


@pytest.mark.parametrize("part", ["", "releases", "releases/r1"])
def test_a_release_in_which_others_can_put_programs_is_not_used(
    tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release(tmp_path / "opt")
    path = {"": made.parents[1], "releases": made.parent}.get(part, made)
    path.chmod(0o775)
    with pytest.raises(fleetbuild.UsageError, match="can be written by others, and the programs"):
        installed_release(paths=[str(tmp_path / "opt")])
    path.chmod(0o755)
    assert installed_release(paths=[str(tmp_path / "opt")]).path == made
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    if path.stat().st_uid:  # root's releases are for everybody
        with pytest.raises(fleetbuild.UsageError, match="belongs to"):
            installed_release(paths=[str(tmp_path / "opt")])


def test_what_others_put_into_a_release_is_not_read(tmp_path: Path) -> None:
    made = release(tmp_path / "opt")
    made.chmod(0o777)
    (made / "manifest.json").unlink()
    os.mkfifo(made / "manifest.json")
    with pytest.raises(fleetbuild.UsageError, match="can be written by others"):
        installed_release(paths=[str(tmp_path / "opt")])


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(user: Path) -> Cli:
    return partial(run_fleetbuild, here=user.parents[2], code=None)


def test_run_finds_the_releases_programs_and_keeps_their_arguments(cli: Cli, user: Path) -> None:
    made = release(user)
    assert cli("run", "--", "greet", "-c").stdout == f"-c from {made}\n"
    assert cli("run", "greet", "--check").stdout == f"--check from {made}\n"
    named = release(user, "other")
    assert cli("run", "--release", "other", "--", "greet", "hi").stdout == f"hi from {named}\n"
    assert cli("run", "--", "sh", "-c", "exit 7").returncode == 7
    missing = cli("run", "--", "no-such-program")
    assert missing.returncode == 2
    assert missing.stderr.startswith("error: no-such-program is neither a program of the release")


def test_run_takes_the_install_path_of_fleetbuild_yml(cli: Cli, user: Path, tmp_path: Path) -> None:
    release(user)
    ours = release(tmp_path / "ours")
    (tmp_path / "fleetbuild.yml").write_text(f"install: {{path: {tmp_path / 'ours'}}}\n")
    assert cli("run", "--", "greet", "hi").stdout == f"hi from {ours}\n"
    missing = cli("run", "--release", "other", "--config", "fleetbuild.yml", "greet").stderr
    assert missing.endswith(
        "fleetbuild apply 'localhost,' --package NAME==VERSION --config fleetbuild.yml\n"
    )


def test_env_is_for_shells(user: Path) -> None:
    made = release(user)
    asked = f'PYTHONHOME=/x; export PYTHONHOME; eval "$({sys.executable} -E -m fleetbuild env)"'
    home = user.parents[2]
    shell = subprocess.run(
        ["/bin/sh", "-c", f"{asked}; greet hi; echo ${{PYTHONHOME-unset}}"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "HOME": str(home)},
        cwd=home,
    )
    assert shell.stdout == f"hi from {made}\nunset\n"


def test_a_unit_and_a_kernel_take_the_caches_of_the_release_that_is_current_when_they_start(
    cli: Cli, user: Path, tmp_path: Path
) -> None:
    first = release(user)
    unit = cli("env", "--format", "systemd").stdout.splitlines()
    assert unit[0] == "[Service]"
    assert unit[1] == f'Environment="PATH={user}/current/bin:/usr/local/bin:/usr/bin:/bin"'
    assert 'Environment="CUDA_CACHE_PATH=%C/%N/%H/current/cuda"' in unit
    assert "CacheDirectory=%N/%H" in unit
    (first / "lib/python3.11/site-packages/ipykernel").mkdir(parents=True)
    kernel = json.loads(cli("env", "--format", "jupyter").stdout)
    ipython = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert kernel["argv"][-5:] == ipython
    cache = tmp_path / "made by systemd"
    cache.mkdir()
    for made in (first, first, release(user, release_id="0a2b")):
        (user / "current").unlink()
        (user / "current").symlink_to(made)
        start = unit[-1].removeprefix("ExecStartPre=").replace("%C/%N/%H", str(cache))
        subprocess.run(shlex.split(start.replace("$$", "$")), check=True, cwd="/")
        (cache / "current" / "triton").mkdir(exist_ok=True)
        assert (cache / "current").resolve().name == made.name
        assert sorted(path.name for path in cache.iterdir()) == [made.name, "current"]
        shown = [*kernel["argv"][:-5], "sh", "-c", "echo $VIRTUAL_ENV $TRITON_CACHE_DIR"]
        ran = subprocess.run(shown, check=True, capture_output=True, text=True, cwd=tmp_path)
        folder = tmp_path / f".cache/fleetbuild/compiled/unknown/{made.name}/triton"
        assert ran.stdout == f"{made} {folder}\n"


def test_env_writes_where_systemd_and_jupyter_read(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release(user)
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() or 1000)

    def env(*words: str) -> Result:
        return CliRunner().invoke(app, ["env", *words])

    lacking = env("--format", "jupyter", "--install", "fleet")
    assert lacking.exit_code == 2
    assert "This release lacks ipykernel" in lacking.stderr
    (made / "lib/python3.11/site-packages/ipykernel").mkdir(parents=True)
    drop_in = Path.home() / ".config/systemd/user/train.service.d/fleetbuild.conf"
    kernel = Path.home() / ".local/share/jupyter/kernels/fleet/kernel.json"
    assert not kernel.parent.exists()
    said = env("--format", "systemd", "--install", "train").stdout
    assert f"Wrote {drop_in}.\nNext: systemctl --user " in said
    assert drop_in.read_text() == env("--format", "systemd").stdout
    assert env("--format", "jupyter", "--install", "fleet").exit_code == 0
    assert kernel.read_text() == env("--format", "jupyter").stdout
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert str(_place(Format.SYSTEMD, "a.timer")).startswith("/etc/systemd/system/a.timer.d/")
    assert str(_place(Format.JUPYTER, "b")).startswith("/usr/local/share/jupyter/kernels/b/")


@pytest.mark.parametrize(
    "words", [("--install", "x"), ("--format", "systemd", "--install", "../x")]
)
def test_env_refuses_a_file_that_nobody_reads(cli: Cli, user: Path, words: tuple[str, ...]) -> None:
    release(user)
    assert cli("env", *words).returncode == 2


def test_plan_says_what_it_takes(user: Path) -> None:
    here = CliRunner().invoke(app, ["plan"])
    first = "No inventory is named, and none is here: taking this machine (localhost,)."
    assert here.stderr.splitlines()[0] == first
    assert "No package is requested" in here.stderr
    (user.parents[2] / "inventory.yml").write_text("all: {hosts: {w1: {ansible_port: x}}}\n")
    for command in ("plan", "apply"):
        beside = CliRunner().invoke(app, [command]).stderr
        assert "No inventory is named: taking inventory.yml, which is here.\n" in beside
        assert "w1: ansible_port" in beside
        assert (".fleetbuild has no plan yet, so apply makes one" in beside) == (command == "apply")


def test_what_packages_compile_is_kept_by_group_and_release(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a home that nodes share, code for one GPU ran on another."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(user / "caches"))
    folders = {}
    for group in ("sm86-avx2-cp311", "sm90-avx512-cp311", "../up"):
        made = release(user / group.strip("./"), release_id="0a1b")
        (made / "manifest.json").write_text(json.dumps({"release": "default", "group": group}))
        folders[group] = installed_release(paths=[str(user / group.strip("./"))]).environment
    first = folders["sm86-avx2-cp311"]
    root = user / "caches/fleetbuild/compiled/sm86-avx2-cp311/0a1b"
    assert {name: value for name, value in first.items() if "CACHE" in name or "TORCH" in name} == {
        "TRITON_CACHE_DIR": str(root / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(root / "extensions"),
        "CUDA_CACHE_PATH": str(root / "cuda"),
        "NUMBA_CACHE_DIR": str(root / "numba"),
    }
    assert first["CUDA_CACHE_PATH"] != folders["sm90-avx512-cp311"]["CUDA_CACHE_PATH"]
    assert "compiled/unknown/0a1b" in folders["../up"]["CUDA_CACHE_PATH"]


def test_caches_of_releases_that_nobody_ran_for_30_days_are_removed(cli: Cli, user: Path) -> None:
    release(user)
    caches = user.parents[2] / ".cache/fleetbuild/compiled"
    for folder, days in (("sm86/0001", 31), ("unknown/0a1b", 29)):
        (caches / folder / "triton").mkdir(parents=True)
        os.utime(caches / folder, (time.time() - days * 86400,) * 2)
    cli("run", "--", "true")
    assert list(caches.glob("*/*")) == [caches / folder]
    assert (caches / folder).stat().st_mtime > time.time() - 3600
