"""Captures on disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleetbuild.errors import CaptureError
from fleetbuild.models import Unreachable
from fleetbuild.probe.captures import load_captures, save_captures
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import SECTIONS

raw = st.binary().map(lambda text: text.decode("utf-8", "surrogateescape"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["a", "b.c", "ü-1"]), st.dictionaries(st.sampled_from(SECTIONS), raw)
    )
)
def test_saved_captures_are_loaded(tmp_path: Path, captures: dict[str, dict[str, str]]) -> None:
    save_captures(tmp_path, captures)
    assert load_captures(tmp_path, captures) == captures


def test_captures_keep_their_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "n"
    folder.mkdir(parents=True)
    text = b"line\r\n\x00\xff\xfe no end"
    (folder / "cpuinfo").write_bytes(text)
    save_captures(tmp_path / "b", load_captures(tmp_path / "a", ["n"]))
    assert (tmp_path / "b" / "n" / "cpuinfo").read_bytes() == text
    assert [p.name for p in (tmp_path / "b" / "n").iterdir()] == ["cpuinfo"]


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    save_captures(tmp_path / "new" / "dir", {"n": {"uname": "Linux"}})
    modes = [stat.S_IMODE(p.stat().st_mode) for p in sorted((tmp_path / "new" / "dir").rglob("*"))]
    assert modes == [0o700, 0o600]


def test_saving_again_removes_old_sections(tmp_path: Path) -> None:
    save_captures(tmp_path, {"n": {"uname": "Linux", "nvidia-smi": "x"}})
    (tmp_path / "n" / "NOTES").write_text("mine")
    save_captures(tmp_path, {"n": {"uname": "Linux 2"}})
    assert load_captures(tmp_path, ["n"]) == {"n": {"uname": "Linux 2"}}
    assert (tmp_path / "n" / "NOTES").exists()


def test_an_unreachable_node_keeps_its_saved_capture(tmp_path: Path) -> None:
    save_captures(tmp_path, {"n": {"uname": "Linux"}})
    save_captures(tmp_path, {"n": Unreachable(reason="no route"), "m": Unreachable(reason="off")})
    assert load_captures(tmp_path, ["n"]) == {"n": {"uname": "Linux"}}
    assert not (tmp_path / "m").exists()


def test_a_link_serves_and_is_not_written_through(tmp_path: Path) -> None:
    save_captures(tmp_path, {"a": {"uname": "A"}})
    (tmp_path / "b").symlink_to("a")
    assert load_captures(tmp_path, ["a", "b"]) == {"a": {"uname": "A"}, "b": {"uname": "A"}}
    save_captures(tmp_path, {"b": {"uname": "B"}})
    assert load_captures(tmp_path, ["a", "b"]) == {"a": {"uname": "A"}, "b": {"uname": "B"}}


def test_a_node_without_a_folder_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    captures = load_captures(tmp_path, ["gone", "file", "dangling"])
    for capture in captures.values():
        assert isinstance(capture, Unreachable)
        assert capture.reason == f"no capture in {tmp_path}"
        assert "--save" in capture.fix


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(CaptureError, match="is not valid for a folder") as caught:
        save_captures(tmp_path / "dir", {"good": {"uname": "x"}, name: {"uname": "x"}})
    assert caught.value.fix
    assert not (tmp_path / "dir").exists()
    assert isinstance(load_captures(tmp_path, [name])[name], Unreachable)


@pytest.mark.parametrize("what", ["does not exist", "is not a folder"])
def test_a_path_that_is_not_a_folder_is_an_error(tmp_path: Path, what: str) -> None:
    directory = tmp_path / "dir"
    if what == "is not a folder":
        directory.write_text("")
    with pytest.raises(CaptureError, match=what) as caught:
        load_captures(directory, ["n"])
    assert caught.value.exit_code == 2
    assert "facts INVENTORY --save" in caught.value.fix


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_captures(tmp_path, {"n": {"uname": "Linux"}})

    def refuse(file: str, *_: Any) -> None:
        raise PermissionError(13, "Permission denied", file)

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(CaptureError, match="uname: Permission denied") as caught:
        load_captures(tmp_path, ["n"])
    assert "permissions" in caught.value.fix


def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match="cannot be written"):
        save_captures(tmp_path / "file" / "dir", {"n": {"uname": "Linux"}})


def test_a_write_that_fails_leaves_no_half_file(tmp_path: Path) -> None:
    save_captures(tmp_path, {"n": {"uname": "Linux"}})
    with pytest.raises(UnicodeEncodeError):  # no text that was ever bytes
        save_captures(tmp_path, {"n": {"uname": "\ud800"}})
    assert [p.name for p in (tmp_path / "n").iterdir()] == ["uname"]
    assert load_captures(tmp_path, ["n"]) == {"n": {"uname": "Linux"}}


def test_odd_files_count_as_unknown(tmp_path: Path) -> None:
    node = tmp_path / "n"
    node.mkdir()
    (node / "uname").write_text("Linux 6.1 x86_64\n")
    with (node / "cpuinfo").open("wb") as large:
        large.truncate(50 * 1024 * 1024)
    (node / "python").write_bytes(os.urandom(4096))
    (node / "nproc").write_text("")
    (node / "lspci").mkdir()
    os.mkfifo(node / "nvidia-smi")
    capture = load_captures(tmp_path, ["n"])["n"]
    assert not isinstance(capture, Unreachable)
    assert "lspci" not in capture
    assert "nvidia-smi" not in capture
    facts = facts_of(capture)
    assert (facts.state, facts.isa, facts.cpus) == ("ok", None, None)
    assert facts.warnings[0] == "cpuinfo is longer than 16 MB and is not read."


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match="file is not a folder") as caught:
        save_captures(tmp_path / "file", {"n": {"uname": "Linux"}})
    assert caught.value.fix == "Name another folder."
