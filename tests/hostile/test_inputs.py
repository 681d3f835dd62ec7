"""Files that people name: devices, pipes, files of the kernel, texts without an end."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fleetbuild.cli.session import _become_password
from fleetbuild.cli.steps import is_plan
from fleetbuild.config import load_config
from fleetbuild.errors import ConfigError, FleetbuildError
from fleetbuild.extensions.kubernetes.api.credentials import _from_file
from fleetbuild.extensions.kubernetes.api.kubeconfig import User, _content, _read
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.packages import parse_packages
from fleetbuild.plan.document.files import read_plan
from fleetbuild.plan.resolve import run_time_requirements
from fleetbuild.plan.resolve.requested import requested_packages
from fleetbuild.plan.resolve.requirement_files import (
    read_constraints,
    read_group,
    read_lock,
    read_requirements,
)
from fleetbuild.plan.resolve.survey import survey_here
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.sources import read_pyproject, read_source
from fleetbuild.store.wheels import Store
from tests.factories.growth import filled, is_linear

SECRET = "canary-91ac"
READERS: dict[str, Callable[[Path], object]] = {
    "requirements": read_requirements,
    "constraints": read_constraints,
    "a group": lambda path: read_group(path, "dev"),
    "a lock": read_lock,
    "fleetbuild.yml": load_config,
    "a plan": read_plan,
    "a become password": partial(_become_password, False),
    "a kubeconfig": _read,
    "a certificate": lambda path: _content("certificate-authority", path.name, "", path.parent),
    "a token": lambda path: _from_file(User(name="me", token_file=path)),
}


@pytest.mark.parametrize("what", ["zero", "full", "pipe", "environ", "folder", "large"])
@pytest.mark.parametrize("reader", READERS)
def test_a_device_a_pipe_and_a_file_of_the_kernel_are_refused_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, what: str
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    paths = {
        "zero": Path("/dev/zero"),
        "full": Path("/dev/full"),
        "environ": Path("/proc/self/environ"),
        "folder": tmp_path,
    }
    path = paths.get(what, tmp_path / "file")
    if (reader, what) == ("a become password", "environ"):
        pytest.skip("the operator's own argument, which nothing else can name")
    if what == "pipe":
        os.mkfifo(path)
    elif what == "large":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(FleetbuildError) as refused:
        READERS[reader](path)
    assert SECRET not in str(refused.value)
    assert "cannot be read" in refused.value.message, refused.value.message


def test_json_of_another_kind_is_taken_for_a_plan_and_a_pipe_is_not(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    assert not is_plan(str(tmp_path / "plan.json"))
    for text, expected in (('{"a": 1}', True), ("[1]", True), ('{"all": {}}', False)):
        (tmp_path / "x.json").write_text(text)
        assert is_plan(str(tmp_path / "x.json")) is expected


@pytest.mark.parametrize("line", ["root:$y$j9T$canary-91ac:19000::", "TOKEN=canary-91ac", "a b c"])
def test_a_requirements_file_that_names_another_does_not_show_its_lines(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "secret").write_text(f"six\n{line}\n")
    (tmp_path / "r.txt").write_text("-r secret\n")
    with pytest.raises(FleetbuildError, match="line 2 is not a requirement") as refused:
        read_requirements(tmp_path / "r.txt")
    assert SECRET not in f"{refused.value} {refused.value.fix}"


LINES = {
    "spaces": "a ",
    "tabs": "\t",
    "comments": "#",
    "comments in spaces": " #",
    "options": "--hash=sha256:0 ",
    "dashes": "--",
    "spaces before dashes": " --",
    "brackets": "[",
    "continued": "a\\\n",
    "lines": "\n",
    "names": "${A}",
}


@pytest.mark.no_cover
@pytest.mark.parametrize("unit", LINES)
def test_a_requirements_file_is_read_in_linear_time(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "r.txt"

    def work(size: int) -> Callable[[], object]:
        path.write_text("six" + filled(LINES[unit], size) + "x")

        def read() -> None:
            with contextlib.suppress(FleetbuildError):
                read_requirements(path)

        return read

    assert is_linear(work, 400_000)


SOURCES = {
    "enable_language(": "CMakeLists.txt",
    "enable_language(CUD ": "CMakeLists.txt",
    "LANGUAGES ": "CMakeLists.txt",
    "find_package(": "CMakeLists.txt",
    "find_package( ": "CMakeLists.txt",
    "option(": "CMakeLists.txt",
    "\n": "CMakeLists.txt",
    " \n": "CMakeLists.txt",
    "#": "CMakeLists.txt",
    " ": "CMakeLists.txt",
    "environ[": "setup.py",
    "environ (": "setup.py",
    "getenv('A": "setup.py",
    "CUDAExtension": "setup.py",
    "ext_": "setup.py",
    "-march=": "setup.cfg",
    "a: b\n": "PKG-INFO",
    "Requires-Dist: a[\n": "PKG-INFO",
    " b\n": "PKG-INFO",
    "[[": "pyproject.toml",
    "a.": "pyproject.toml",
    "a={": "pyproject.toml",
}


@pytest.mark.no_cover
@pytest.mark.parametrize(("unit", "name"), SOURCES.items())
def test_the_files_of_a_source_are_read_in_linear_time(
    tmp_path: Path, unit: str, name: str
) -> None:
    def work(size: int) -> Callable[[], object]:
        folder = tmp_path / str(size)
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(filled(unit, size))

        def read() -> None:
            with contextlib.suppress(FleetbuildError):
                survey_here(folder)

        return read

    assert is_linear(work, 1 << 18)


@pytest.mark.parametrize("name", ["/srv/backup", "a/b", "x\ny: z", "x @ https://h/x", "-x", "é"])
def test_a_name_of_a_source_that_no_package_has_becomes_no_file(tmp_path: Path, name: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    project = f"[project]\nname = {json.dumps(name)}\nversion = '1x'\n"
    (tree / "pyproject.toml").write_text(project, "utf-8")
    found = read_source(tree)
    assert (found.name, found.version) == (None, None)
    (spec,) = parse_packages([str(tree)])
    with pytest.raises(ConfigError, match="does not say which package it is"):
        requested_packages([spec], tmp_path, {}, Store(tmp_path / "store"))


def test_toml_of_strangers_is_read_in_the_separate_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, project = tmp_path / "pylock.toml", tmp_path / "pyproject.toml"
    lock.write_text("lock-version='1.0'\ncreated-by='x'\npackages=[]\n")
    project.write_text("[dependency-groups]\ndev=[]\n")
    monkeypatch.delattr("tomllib.loads")  # here, where a key of many parts would take gigabytes
    assert read_lock(lock).packages == []
    assert read_group(project, "dev") == ()
    assert read_pyproject(project.read_text(), "https://host/repo").name is None


DIGITS = "1" * 5000  # more than Python reads as a number
NUMBERS = {
    "requirements": f"six=={DIGITS}",
    "constraints": f"six=={DIGITS}",
    "a group": f'[dependency-groups]\ndev = ["six=={DIGITS}"]\n',
    "a size in a lock": f"lock-version='1.0'\ncreated-by='x'\nx={DIGITS[:400]}\npackages=[]\n",
}


@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_without_an_end_is_a_sentence(tmp_path: Path, what: str) -> None:
    (tmp_path / "file.txt").write_text(NUMBERS[what])
    with pytest.raises(ConfigError):
        READERS.get(what, read_lock)(tmp_path / "file.txt")


def test_a_number_without_an_end_in_the_metadata_of_an_index_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, found = "https://x.invalid/six-1.0-py3-none-any.whl", f"Name: six\nVersion: {DIGITS}\n"
    monkeypatch.setattr(run_time_requirements, "read_text", lambda *_: found)
    file = LockedFile(name="six", version="1.0", file="six.whl", sha256="0" * 64, url=url)
    assert run_time_requirements.metadata_of_wheel(file, IndexSettings()) is None


@pytest.mark.parametrize(
    "text", [f"Metadata-Version: {DIGITS}", f"Metadata-Version: 2.2\nVersion: {DIGITS}"]
)
def test_a_number_without_an_end_in_a_source_is_not_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "PKG-INFO").write_text(f"{text}\nName: six\n")
    assert (read_source(tmp_path).name, read_source(tmp_path).version) == ("six", None)
