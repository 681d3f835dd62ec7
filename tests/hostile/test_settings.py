"""Programs of the controller take no settings from where other users can write."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetbuild import Fleet, UsageError, default_inventory, doctor, find_config
from fleetbuild.audit import limited_process
from fleetbuild.audit.wheel import audit_here
from fleetbuild.errors import ResolutionError
from fleetbuild.extensions.check.check_stack import check
from fleetbuild.models import TargetLibc
from fleetbuild.plan.decide.resolution import LockRequest
from fleetbuild.plan.resolve import backend, sandbox
from fleetbuild.plan.resolve.uv import find_wheels, locate, newest_version, resolve
from fleetbuild.probe.inventory import read_inventory
from fleetbuild.probe.transport.openssh import ask_ssh
from fleetbuild.store.git import find_commit, pack_commit, read_file
from fleetbuild.store.index_config import IndexSettings
from tests.factories.files import make_repository, make_sdist, make_wheel, only, own_backend

_UV = """
override-dependencies = ["dep @ {wheel}"]
constraint-dependencies = ["pkg<1.1"]
index = [{{url = "http://127.0.0.1:9/simple", default = true}}]
"""
_SOURCES = '[tool.uv.sources]\ndep = {{path = "{path}"}}\npkg = {{path = "{path}"}}\n'
_PROJECT = '[project]\nname = "evil"\nversion = "0"\n'
UV_SETTINGS = {
    "uv.toml": {"uv.toml": _UV},
    "pyproject.toml": {"pyproject.toml": "[tool.uv]" + _UV},
    "a project": {"pyproject.toml": _PROJECT + "[tool.uv]" + _UV},
    "a workspace": {
        "pyproject.toml": _PROJECT
        + "[tool.uv]"
        + _UV
        + '[tool.uv.workspace]\nmembers = ["*", "*/*"]\n'
        + _SOURCES
    },
}


@pytest.fixture
def common(tmp_path, monkeypatch):
    """A folder like /tmp, where any user can write: the temporary files and the work lie in it."""
    folder = tmp_path / "common"
    (folder / "tmp").mkdir(parents=True)
    (folder / "work").mkdir()
    folder.chmod(0o777 | stat.S_ISVTX)
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    monkeypatch.chdir(folder / "work")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def settings(tmp_path):
    files = tmp_path / "files"
    for version in ("1.0", "1.1"):
        make_sdist(files, "pkg", version)
        make_wheel(files, "dep", version)
    return only(files, tmp_path / "cache")


def request_for(*requirements: str, sources: tuple[str, ...] = ()) -> LockRequest:
    return LockRequest(
        requirements=requirements,
        sources=sources,
        python_version="3.11.2",
        python="cp311",
        arch="x86_64",
        libc=TargetLibc(family="glibc", floor="2.28"),
    )


def planned(settings: IndexSettings) -> dict[str, object]:
    """What uv answers to each question that a plan asks."""
    wanted = request_for("dep==1.1")
    with pytest.raises(ResolutionError, match="is not on the index") as unknown:
        locate(request_for("pkg==7", sources=("pkg",)), settings)
    return {
        "resolve": resolve(request_for("dep"), settings),
        "find": find_wheels([wanted], settings)[wanted],
        "locate": locate(request_for("pkg", sources=("pkg",)), settings),
        "newest": newest_version("pkg", settings),
        "unknown": unknown.value.message,
    }


def plant(files: dict[str, str], folders: list[Path], mallory: Path) -> None:
    wheel = make_wheel(mallory, "dep", "99")
    for folder in folders:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.format(wheel=wheel.as_uri(), path=wheel))
            path.chmod(0o755)


@pytest.mark.parametrize("kind", UV_SETTINGS)
@pytest.mark.parametrize("own", [False, True], ids=["", "an index of its own"])
def test_uv_takes_no_settings_from_a_folder_where_others_write(
    common, settings, tmp_path, kind, own
):
    if own:
        settings = IndexSettings(
            settings.environment, package_index={"dep": str(tmp_path / "files")}
        )
    before = planned(settings)
    plant(UV_SETTINGS[kind], [common, common / "tmp", common / "work"], tmp_path / "mallory")
    assert planned(settings) == before


@pytest.mark.parametrize(
    "variable",
    [
        "UV_NO_CONFIG=1",
        "UV_CONFIG_FILE=/dev/null",
        "UV_PROJECT={common}",
        "UV_WORKING_DIR={common}",
        "UV_PYTHON={common}/python",
    ],
)
def test_a_variable_for_uv_neither_runs_a_source_nor_leads_elsewhere(
    common, settings, tmp_path, monkeypatch, variable
):
    before = planned(settings)
    mark = tmp_path / "mark"
    make_sdist(
        tmp_path / "files", "pkg", "1.2",
        pyproject=own_backend("evil"),
        files={"evil.py": f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n",
               "PKG-INFO": "Metadata-Version: 2.1\nName: pkg\nVersion: 1.2\n"},
    )  # fmt: skip
    plant(UV_SETTINGS["a workspace"], [common], tmp_path / "mallory")
    monkeypatch.setenv(*variable.format(common=common).split("="))
    assert planned(settings)["resolve"] == before["resolve"]
    assert not mark.exists()


def test_settings_of_the_user_and_of_the_system_for_uv_are_taken(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    for folder, bound in (("system", "pkg<1.1"), ("own", "dep<1.1")):
        path = tmp_path / folder / "uv" / "uv.toml"
        path.parent.mkdir(parents=True)
        path.write_text(f'constraint-dependencies = ["{bound}"]\n')
    answer = resolve(request_for("dep"), settings)
    assert [file.version for file in answer.wheels] == ["1.0"]
    assert newest_version("pkg", settings) == "1.0"


# What one user can leave for the programs of another; %s is a program that leaves a mark.
_GIT = """[core]
    fsmonitor = %s
    sshCommand = %s
    hooksPath = {folder}/hooks
    bare = false
[url "{mallory}"]
    insteadOf = {repository}
[protocol "ext"]
    allow = always
"""
_ANSIBLE = """[defaults]
inventory_plugins = {folder}/plugins
vars_plugins_enabled = host_group_vars,evil
vars_plugins = {folder}/plugins
vault_password_file = %s
[inventory]
enable_plugins = evil,yaml
"""
_PYTHON = "import subprocess\nsubprocess.call(['%s'])\n"
_SSH = "Host *\n    Port 666\n    ProxyCommand %s\n    KnownHostsCommand %s\n"
LEFT = {
    "uv.toml": _UV,
    "pyproject.toml": UV_SETTINGS["a workspace"]["pyproject.toml"],
    ".venv/bin/python": "#!/bin/sh\n%s\n",
    ".venv/pyvenv.cfg": "",
    ".config/uv/uv.toml": _UV,
    ".git/config": _GIT,
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/objects/info/alternates": "",
    ".git/refs/heads/.keep": "",
    ".gitconfig": _GIT,
    ".config/git/config": _GIT,
    ".ssh/config": _SSH,
    "ansible.cfg": _ANSIBLE,
    "group_vars/all.yml": "ansible_ssh_common_args: -o ProxyCommand=%s\n",
    "host_vars/node.yml": "ansible_port: 99\n",
    ".ansible.cfg": _ANSIBLE,
    "plugins/evil.py": _PYTHON,
    "sitecustomize.py": _PYTHON,
    "usercustomize.py": _PYTHON,
    "fleetbuild.py": _PYTHON,
    "json.py": _PYTHON,
    "yaml.py": _PYTHON,
}


def of_uv(place: Path) -> object:
    return planned(only(place / "files", place / "cache"))


def of_build_requirements(place: Path) -> object:
    target = place / "target"
    target.mkdir(exist_ok=True)
    assert backend.install_wheels([place / "files" / "dep-1.1-py3-none-any.whl"], target) == ""
    return sorted(path.name for path in target.iterdir())


def of_doctor(place: Path) -> object:
    return [each for each in doctor.examine(place) if each.what not in {"state directory", "disk"}]


def of_git(place: Path) -> object:
    address = (place / "repository").as_uri()
    commit = find_commit(address, "main", {})
    pack_commit(address, commit, place / "packed.tar.gz", "x", submodules=True, mirrors={})
    return commit, read_file(address, commit, "file", {}), (place / "packed.tar.gz").read_bytes()


def of_ssh(_: Path) -> object:
    return ask_ssh(["ssh", "-G", "--", "node"], 10)


def of_ssh_keygen(place: Path) -> object:
    signing = pytest.importorskip("fleetbuild.extensions.supply.signing")
    return signing.Signer(place / "key").sign("x", "release@fleetbuild.dev")


def of_ansible(place: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:  # not as an earlier run kept it
        patch.setattr("fleetbuild.probe.inventory.read_once", lambda *given: given[-1]())
        found = read_inventory(str(place / "hosts.yml"))
    return found.model_copy(update={"warnings": ()})  # that Ansible ignores ansible.cfg there


def of_reader(folder: Path) -> object:
    wheel = make_wheel(folder / "read")
    return limited_process.read_apart(audit_here, wheel)


def of_sandbox(_: Path) -> object:
    return sandbox.run_confined(
        [str(sandbox.PYTHON), "-c", "import json, sys; print(sys.path)"], {}
    )


PROGRAMS: dict[str, Callable[[Path], object]] = {
    "uv": of_uv,
    "uv installs": of_build_requirements,
    "uv of doctor": of_doctor,
    "git": of_git,
    "ssh": of_ssh,
    "ssh-keygen": of_ssh_keygen,
    "ansible": of_ansible,
    "python": of_reader,
    "sandbox": of_sandbox,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_takes_no_settings_from_where_others_write(
    common, tmp_path, monkeypatch, program
):
    """In the folder of temporary files, the working directory, their parents and another's home."""
    for version in ("1.0", "1.1"):
        make_sdist(tmp_path / "files", "pkg", version)
        make_wheel(tmp_path / "files", "dep", version)
    ask, mark, mallory = PROGRAMS[program], tmp_path / "mark", tmp_path / "mallory"
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    (common / "work").chmod(0o1777)
    (tmp_path / "hosts.yml").write_text("all: {hosts: {node: {}}}\n")
    make_repository(tmp_path / "repository", {"file": "good"})
    make_repository(mallory / "repository", {"file": "evil"})
    if program == "ssh-keygen":
        new = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"]
        subprocess.run(new, check=True)
    before = ask(tmp_path)
    run = mallory / "run"
    run.write_text(f"#!/bin/sh\ntouch {mark}\n")
    run.chmod(0o755)
    wheel = make_wheel(mallory, "dep", "99")
    for folder in (common, common / "tmp", common / "work", mallory):
        for name, template in LEFT.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = template.replace("%s", str(run))
            if "{" in text:
                text = text.format(
                    wheel=wheel.as_uri(), path=wheel, folder=folder,
                    mallory=(mallory / "repository").as_uri(),
                    repository=(tmp_path / "repository").as_uri(),
                )  # fmt: skip
            path.write_text(text)
            path.chmod(0o755)
    assert ask(tmp_path) == before
    assert not mark.exists()


def test_a_home_of_another_user_is_refused(tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    Fleet("node,", state_dir=tmp_path / "state")
    home.chmod(0o1777)
    refused_calls = (
        lambda: Fleet("node,", state_dir=tmp_path / "state"),
        lambda: read_inventory("node,"),
        lambda: check(["six"], state_dir=tmp_path / "state"),
    )
    for call in refused_calls:
        with pytest.raises(UsageError, match="any user can write to"):
            call()
    if os.geteuid() == 0:
        home.chmod(0o755)
        os.chown(home, 65534, 65534)
        with pytest.raises(UsageError, match=r"belongs to .* uv, git and Ansible") as refused:
            Fleet("node,", state_dir=tmp_path / "state")
        assert "sudo -H" in refused.value.fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_settings_of_another_user_that_sudo_kept_are_refused(tmp_path, monkeypatch):
    settings = tmp_path / "config"
    settings.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
    Fleet("node,", state_dir=tmp_path / "state")
    os.chown(settings, 65534, 65534)
    with pytest.raises(UsageError, match=f"XDG_CONFIG_HOME is {settings}, which belongs to"):
        Fleet("node,", state_dir=tmp_path / "state")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    Fleet("node,", state_dir=tmp_path / "state")


@pytest.mark.parametrize("inventory", ["hosts.yml", "node,"])
def test_an_inventory_in_a_folder_where_others_write_is_refused(common, tmp_path, inventory):
    work = common / "work"
    (work / "hosts.yml").write_text("all: {hosts: {node: {}}}\n")
    assert Fleet(inventory, state_dir=tmp_path / "state").config.packages == ()
    (work / "fleetbuild.yml").write_text("packages: {evil: {}}\n")
    work.chmod(0o1777)
    for use in ("config", "inventory"):
        fleet = Fleet(inventory, state_dir=tmp_path / "state")
        with pytest.raises(UsageError, match="where any user can write"):
            getattr(fleet, use)


def test_an_inventory_that_another_user_may_have_left_is_not_run(common, tmp_path):
    mark = tmp_path / "mark"
    inventory = common / "inventory"
    inventory.write_text(f"#!/bin/sh\ntouch {mark}\necho '{{}}'\n")
    inventory.chmod(0o755)
    with pytest.raises(UsageError, match="where any user can write"):
        read_inventory(inventory)
    assert not mark.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize("source", ["hosts.yml", "localhost,"])
def test_a_folder_of_another_user_that_nobody_named_is_refused(tmp_path, monkeypatch, source):
    """Its mode is 0755, and the user's inventory runs a command when Ansible reads it."""
    folder, mark, state = tmp_path / "theirs", tmp_path / "mark", tmp_path / "state"
    folder.mkdir()
    (folder / "hosts.yml").write_text(
        f"all: {{hosts: {{node: {{x: \"{{{{ lookup('pipe', 'touch {mark}') }}}}\"}}}}}}\n"
    )
    (folder / "fleetbuild.yml").write_text("install: {path: /evil}\n")
    os.chown(folder, 41234, 41234)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert default_inventory() == "hosts.yml"
    for call in (
        lambda: read_inventory(source),
        lambda: find_config(source),
        lambda: Fleet(source, state_dir=state).config,
    ):
        with pytest.raises(UsageError, match=r"belongs to user 41234.* run commands as you"):
            call()
    assert not mark.exists()
    monkeypatch.setenv("SUDO_UID", "41234")  # that user is root already
    assert find_config(source)
    monkeypatch.delenv("SUDO_UID")
    assert find_config(f"{folder}/hosts.yml")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_plugins_of_an_ansible_cfg_in_another_users_folder_do_not_run(tmp_path, monkeypatch):
    folder, mark = tmp_path / "theirs", tmp_path / "mark"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins/evil.py").write_text(f"open({str(mark)!r}, 'w')\n")
    (folder / "ansible.cfg").write_text("[defaults]\nvars_plugins = plugins\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {node: {}}}\n")
    os.chown(folder, 41234, 41234)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SUDO_UID", raising=False)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    with pytest.raises(UsageError, match=r"belongs to user 41234.* run the plugins"):
        read_inventory(tmp_path / "hosts.yml")
    assert not mark.exists()
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")  # who names the file trusts that user
    read_inventory(tmp_path / "hosts.yml")
    assert mark.exists()


def test_a_configuration_that_another_user_may_have_left_names_no_release(common, monkeypatch):
    monkeypatch.chdir(common)
    assert find_config("localhost,") is None
    (common / "fleetbuild.yml").write_text("install: {path: /evil}\n")
    with pytest.raises(UsageError, match="where any user can write"):
        find_config("localhost,")
