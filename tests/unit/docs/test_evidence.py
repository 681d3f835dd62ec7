"""Records of wheels that were built: each is whole, and a wheel is checked against one."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest

from benchmarks.evidence import differences, record_of
from fleetbuild.hardware.rungs import RUNGS
from tests.factories.elf import make_elf, make_fatbin
from tests.factories.files import demo_wheel

EVIDENCE = Path(__file__).parents[3] / "docs" / "evidence" / "wheels"
RECORDS = sorted(EVIDENCE.glob("*.json"))
# A folder with wheels that were built by the steps of docs/evidence/README.md.
BUILT = Path(os.environ.get("FLEETBUILD_EVIDENCE", "/nonexistent"))


def wheel(folder: Path, sm: int = 86) -> Path:
    code = make_elf(b"\xc5\xf4\x58\xc2\xc3", fatbin=make_fatbin((2, sm, 0)))  # vaddps ymm
    return demo_wheel(folder, files={"demo/_c.so": code})


def test_a_wheel_is_the_one_of_its_record(tmp_path: Path) -> None:
    record = record_of(wheel(tmp_path))
    assert record["files"]["demo/_c.so"]["sms"] == ["8.6"]
    assert record["files"]["demo/_c.so"]["default"] == ["avx"]
    assert list(differences(record, wheel(tmp_path))) == []


def test_another_wheel_differs_from_it(tmp_path: Path) -> None:
    record = record_of(wheel(tmp_path / "a"))
    other = wheel(tmp_path / "b", sm=90)
    found = list(differences(record, other, same_bytes=False))
    assert found == ["demo/_c.so: sms is ['9.0'], not ['8.6']"]
    assert any("sha256" in each for each in differences(record, other))
    more = copy.deepcopy(record)
    more["files"]["demo/_d.so"] = more["files"]["demo/_c.so"]
    assert list(differences(more, wheel(tmp_path / "a"))) == ["demo/_d.so is missing"]
    assert list(differences({**record, "files": {}}, wheel(tmp_path / "a"))) == [
        "demo/_c.so is not in the record"
    ]


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_holds_nothing_beyond_its_target(path: Path) -> None:
    record = json.loads(path.read_text())
    name, _, label = path.stem.partition("+")
    assert record["wheel"].replace("_", "-").startswith(f"{name}+{label}")
    assert record["problems"] == []
    rung = RUNGS[label.rpartition(".")[2]]
    sms = {part[2:-1] + "." + part[-1] for part in label.split(".") if part.startswith("sm")}
    assert record["files"]
    for file in record["files"].values():
        assert {*file["load"], *file["default"]} <= rung.features
        assert set(file["sms"]) <= sms
    assert {sm for file in record["files"].values() for sm in file["sms"]} == sms


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_wheel_that_was_built_again_has_the_same_code(path: Path) -> None:
    record = json.loads(path.read_text())
    if not (built := BUILT / record["wheel"]).is_file():
        pytest.skip("FLEETBUILD_EVIDENCE has no such wheel")
    assert list(differences(record, built, same_bytes=False)) == []
