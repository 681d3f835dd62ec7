"""No code of a package runs on the controller: an sdist whose build tries everything at once."""

from __future__ import annotations

import io
import shutil
import socket
import tarfile
from pathlib import Path

import pytest

from fleetbuild.models import LockedFile
from fleetbuild.plan.plan_fleet import plan_fleet
from fleetbuild.plan.resolve import sandbox
from fleetbuild.plan.resolve.backend import ask_backend
from fleetbuild.plan.resolve.sandbox import SandboxError, why_unavailable
from fleetbuild.store.wheels import Store
from tests.factories.files import be_only_index, make_wheel, only, own_backend
from tests.factories.fleets import facts, inventory

CANARY = "canary-7f3a"
PYPROJECT = own_backend("setup")
SETUP = '''\
"""Runs when the backend is asked: tries each attack, and requires what it reached."""
import os, pathlib, socket, sys

reached = []

def attempt(name, attack):
    try:
        if attack():
            reached.append(name)
    except (Exception, SystemExit):
        pass

def write(path):
    pathlib.Path(path).write_text("written")
    return True

def connect():
    return bool(socket.create_connection(("127.0.0.1", {port}), timeout=2))

attempt("marker", lambda: write({marker!r}))
attempt("home", lambda: os.listdir({home!r}))
attempt("etc", lambda: open("/etc/passwd").read())
attempt("usr", lambda: write("/usr/written"))
attempt("network", connect)
attempt("environment", lambda: "{canary}" in str(dict(os.environ)))
attempt("processes", lambda: [each for each in os.listdir("/proc")
                              if each.isdigit() and int(each) > 50])
attempt("others", lambda: "{canary}" in open("/proc/1/environ").read())

def prepare_metadata_for_build_wheel(folder, settings=None):
    info = pathlib.Path(folder, "evil-1.0.dist-info")
    info.mkdir()
    requires = "".join(f"Requires-Dist: reached-{{each}}\\n" for each in reached)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\\nName: evil\\nVersion: 1.0\\nRequires-Dist: dep\\n" + requires)
    print("noise on standard output")
    return info.name

def build_wheel(*_, **__):
    raise RuntimeError("not here")
'''


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


@pytest.fixture
def site(tmp_path, monkeypatch, listener):
    """A folder of files that serves as the index, with the hostile sdist in it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "secret").write_text(CANARY)
    marker = tmp_path / "marker"
    text = SETUP.format(
        port=listener.getsockname()[1], marker=str(marker), home=str(home), canary=CANARY
    )
    files = tmp_path / "files"
    make_wheel(files, "dep")
    write_sdist(
        files / "evil-1.0.tar.gz",
        {
            "pyproject.toml": PYPROJECT,
            "setup.py": text,
            "PKG-INFO": "Metadata-Version: 2.1\nName: evil\n",
        },
    )
    be_only_index(files, monkeypatch)
    monkeypatch.setenv("SSH_AUTH_SOCK", f"/tmp/{CANARY}")
    monkeypatch.setenv("HOME", str(home))
    return tmp_path


def write_sdist(path: Path, files: dict[str, str]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


def plan(*packages):
    fleet = {"a": facts()}
    return plan_fleet(inventory(fleet), fleet, packages=packages)


def untouched(site: Path, listener: socket.socket) -> bool:
    with pytest.raises(TimeoutError):
        listener.accept()
    return not (site / "marker").exists()


needs_sandbox = pytest.mark.skipif(
    why_unavailable() is not None, reason=f"needs a sandbox: {why_unavailable()}"
)


@needs_sandbox
def test_nothing_of_a_hostile_setup_py_happens_on_the_controller(site, listener):
    made = plan("evil==1.0")
    assert made.lock == "complete", (made.lock_problem, made.nodes)
    # It requires reached-X for each attack X that reached something.
    assert [file.name for file in made.groups[0].dependencies] == ["dep"]
    assert untouched(site, listener)


@needs_sandbox
@pytest.mark.usefixtures("site")
def test_the_backend_is_asked_once(monkeypatch):
    plan("evil==1.0")
    monkeypatch.setattr("fleetbuild.plan.resolve.backend.run_confined", None)
    assert plan("evil==1.0").lock == "complete"


def test_without_a_sandbox_the_plan_says_what_to_write(site, listener, monkeypatch):
    refusing = site / "refusing.py"
    refusing.write_text("import sys; sys.exit('user namespaces are not allowed')")
    monkeypatch.setattr(sandbox, "_START", refusing)
    sandbox.why_unavailable.cache_clear()
    try:
        made = plan("evil==1.0")
    finally:
        sandbox.why_unavailable.cache_clear()
    assert made.nodes["a"].state == "blocked"
    assert "runs no code of a package as its user" in made.nodes["a"].reason
    assert (
        "this machine does not allow one: user namespaces are not allowed" in made.nodes["a"].reason
    )
    assert "recipes/evil.yml" in made.nodes["a"].fix
    assert "'requires: [NAME, ...]'" in made.nodes["a"].fix
    assert untouched(site, listener)

    recipe = site / "recipes" / "evil.yml"
    recipe.parent.mkdir()
    recipe.write_text("extends: generic\nname: evil\npackages: [evil]\nrequires: [dep]\n")
    made = plan("evil==1.0")
    assert made.lock == "complete", made.nodes
    assert [file.name for file in made.groups[0].dependencies] == ["dep"]
    assert untouched(site, listener)


def test_a_published_wheel_of_the_same_version_states_the_requirements_of_the_source(
    site, listener, monkeypatch
):
    monkeypatch.setattr("fleetbuild.plan.resolve.run_time_requirements.ask_backend", None)
    make_wheel(site / "files", "evil", requires="dep")
    made = plan("evil==1.0")
    assert [file.name for file in made.groups[0].dependencies] == ["dep"]
    assert untouched(site, listener)


def test_a_wheel_on_the_index_does_not_state_the_requirements_of_a_local_source(site, monkeypatch):
    def asked(*_):
        raise SandboxError("asked")

    monkeypatch.setattr("fleetbuild.plan.resolve.run_time_requirements.ask_backend", asked)
    make_wheel(site / "files", "evil", requires="foreign")
    made = plan("evil==1.0 @ files/evil-1.0.tar.gz")
    assert "failed: asked." in made.nodes["a"].reason


@needs_sandbox
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('no torch here')", "SystemExit: no torch here"),
        ("raise ValueError('\\x1b[31mred')", "ValueError: red"),
        ("import os; os._exit(3)", "it ended with code 3"),
        ("import os; os.write(3, b'x'); os.close(3); os._exit(0)", "without an answer"),
        ("", "tells them only with the whole wheel"),
        ("open('/scratch/big', 'wb').truncate(1 << 40)", "OSError"),
        ("x = bytearray(1 << 40)", "MemoryError"),
    ],
)
def test_a_failing_backend_is_explained_in_a_sentence(tmp_path, code, words):
    files = tmp_path / "files"
    files.mkdir()
    write_sdist(files / "evil-1.0.tar.gz", {"pyproject.toml": PYPROJECT, "setup.py": code})
    store = Store(tmp_path / "store", only(files, tmp_path / "cache"))
    stored, sha256 = store.add_file(
        lambda dest: shutil.copyfile(files / "evil-1.0.tar.gz", dest), "evil-1.0.tar.gz"
    )
    file = LockedFile(name="evil", version="1.0", file=stored.name, sha256=sha256, url="")
    with pytest.raises(SandboxError, match=words):
        ask_backend(file, (), store)


@needs_sandbox
def test_a_backend_that_sleeps_is_ended(monkeypatch):
    monkeypatch.setattr(sandbox, "_SECONDS", 2)
    with pytest.raises(SandboxError, match="did not end within 2 s"):
        sandbox.run_confined([str(sandbox.PYTHON), "-c", "import time; time.sleep(600)"], {})


@needs_sandbox
@pytest.mark.network
def test_a_real_setup_py_without_static_metadata(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "recipes" / "hnswlib.yml"
    recipe.parent.mkdir()
    recipe.write_text("name: hnswlib\npackages: [hnswlib]\nrungs: [x86-64]\n")
    made = plan("hnswlib==0.8.0")
    assert made.lock == "complete", made.nodes
    assert [file.name for file in made.groups[0].dependencies] == ["numpy"]
