"""Files of a build: which are to be sent, which an earlier build left, and what damaged ones do."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.factories.role_modules import plugin

CONTENT = b"a wheel"
SHA = hashlib.sha256(CONTENT).hexdigest()
NAME = "a-1.0-py3-none-any.whl"


@pytest.fixture(scope="module")
def input_files() -> ModuleType:
    return plugin("module_utils.builder.input_files")


@pytest.fixture
def files(input_files: ModuleType, tmp_path: Path) -> Any:
    (tmp_path / "one" / "in").mkdir(parents=True)
    return input_files.InputFiles(str(tmp_path / "one"), [(NAME, SHA)])


def another(input_files: ModuleType, files: Any) -> Any:
    """The files of a second build beside the first, which needs the same wheel."""
    folder = Path(files.place).parents[1] / "two"
    (folder / "in").mkdir(parents=True)
    return input_files.InputFiles(str(folder), files.wanted)


def test_a_sent_file_is_laid_and_not_asked_of_the_next_build(
    input_files: ModuleType, files: Any
) -> None:
    assert files.expect() == [SHA]
    Path(files.incoming, SHA, NAME).write_bytes(CONTENT)
    assert files.lay(NAME, SHA)
    assert Path(files.place, NAME).read_bytes() == CONTENT
    second = another(input_files, files)
    assert second.expect() == []
    assert not os.listdir(second.incoming) if os.path.isdir(second.incoming) else True
    assert second.lay(NAME, SHA)


def test_a_file_that_was_cut_short_is_sent_again(files: Any) -> None:
    files.expect()
    Path(files.incoming, SHA, NAME).write_bytes(CONTENT[:3])
    assert files.expect() == [SHA]
    assert not files.lay(NAME, SHA)
    Path(files.incoming, SHA, NAME).write_bytes(CONTENT)
    assert files.expect() == []  # an interrupted run sends what it had not sent
    assert files.lay(NAME, SHA)


def test_a_kept_file_that_changed_is_forgotten(input_files: ModuleType, files: Any) -> None:
    files.keep(str(sent(files)), SHA)
    kept = Path(files.kept, SHA, NAME)
    kept.unlink()
    kept.write_bytes(b"another wheel")
    second = another(input_files, files)
    assert not second.lay(NAME, SHA)
    assert second.expect() == [SHA]


def test_a_damaged_file_in_its_place_does_not_cost_the_kept_one(files: Any) -> None:
    files.keep(str(sent(files)), SHA)
    Path(files.place, NAME).write_bytes(b"cut sh")
    assert files.lay(NAME, SHA)
    assert Path(files.place, NAME).read_bytes() == CONTENT


def test_a_file_that_a_build_was_promised_stays(input_files: ModuleType, files: Any) -> None:
    files.keep(str(sent(files)), SHA)
    old = time.time() - 13.9 * 86400
    os.utime(Path(files.kept, SHA), (old, old))
    assert files.expect() == []
    assert time.time() - Path(files.kept, SHA).stat().st_mtime < 86400
    assert another(input_files, files).lay(NAME, SHA)


def test_a_link_is_refused(files: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(CONTENT)
    files.expect()
    Path(files.incoming, SHA, NAME).symlink_to(secret)
    assert not files.lay(NAME, SHA)
    assert secret.exists()


def test_files_that_no_build_uses_are_removed_after_two_weeks(files: Any) -> None:
    files.keep(str(sent(files)), SHA)
    assert files.expect() == []
    old = time.time() - 15 * 86400
    os.utime(Path(files.kept, SHA), (old, old))
    assert files.expect() == [SHA]


def test_a_file_system_without_links_gets_copies(
    files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    sent(files)
    assert files.lay(NAME, SHA)
    assert Path(files.kept, SHA, NAME).read_bytes() == CONTENT


def sent(files: Any) -> Path:
    """The path of the wheel, as the controller sends it."""
    files.expect()
    path = Path(files.incoming, SHA, NAME)
    path.write_bytes(CONTENT)
    return path


def test_a_file_has_its_mode_whatever_the_umask_of_who_sent_it(files: Any) -> None:
    files.expect()
    folder = Path(files.incoming, SHA)
    assert folder.stat().st_mode & 0o777 == 0o700  # nobody else opens the file while it is open
    sent = folder / NAME
    sent.write_bytes(CONTENT)
    sent.chmod(0o666)
    assert files.lay(NAME, SHA)
    for path in (Path(files.kept, SHA, NAME), Path(files.place, NAME)):
        assert path.stat().st_mode & 0o777 == 0o644
