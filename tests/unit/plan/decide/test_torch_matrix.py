"""40 kinds of machines and five versions of torch: the plans are the cells of matrix.md."""

from __future__ import annotations

import re

import pytest

from fleetbuild.toolchains.pytorch import NEWEST, TORCHES
from tests.torch_matrix import MACHINES, MATRIX, VERSIONS, cell, machines

pytestmark = pytest.mark.no_cover
TEXT = MATRIX.read_text()
UPSTREAM = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| (x86_64|aarch64) \| ([\d. ]+) \|", TEXT, re.M)
CELLS = {
    name: cells.split(" | ")
    for name, cells in re.findall(
        r"^\| ([a-z][\w-]+) \| (.+) \|$", TEXT.partition("## The cells")[2], re.M
    )
}


def test_the_table_is_complete() -> None:
    assert len(MACHINES) == 40
    assert [name for name in CELLS if name != "machine"] == list(MACHINES)
    assert CELLS["machine"] == list(VERSIONS)
    assert VERSIONS[-1] == NEWEST.newest


@pytest.mark.parametrize("version", VERSIONS)
def test_each_machine_gets_the_cell_that_was_checked_by_hand(version: str) -> None:
    found = {name: cell(facts, version) for name, facts in machines().items()}
    column = VERSIONS.index(version)
    assert found == {name: CELLS[name][column] for name in found}


def test_the_sms_of_pytorchs_wheels_are_upstreams() -> None:
    assert len(UPSTREAM) == 32
    for torch, cuda, arch, sms in UPSTREAM:
        assert TORCHES[torch].releases[cuda].sms[arch] == tuple(sms.split()), (torch, cuda, arch)


NAMED = {"M40": "m40", "P100": "p100", "P40": "p40", "V100": "v100", "K80": "k80", "K40": "hsw-k40"}


def test_the_page_on_hardware_names_the_newest_torch_for_old_gpus() -> None:
    rows = re.findall(
        r"^\| (\w+)[^|]*\| [\d.]+ \| ([^|]*) \| ([\d.]+) \(\*(\w+)\*[^|]*\| ([\d.]+)",
        (MATRIX.parents[2] / "docs" / "hardware.md").read_text(), re.M,
    )  # fmt: skip
    assert [name for name, *_ in rows] == list(NAMED)
    for name, published, newest, evidence, cuda in rows:
        known = machines()[NAMED[name]]
        cells = {torch.newest: cell(known, torch.newest) for torch in TORCHES.values()}
        planned = [version for version, text in cells.items() if text.startswith("cu")]
        assert (planned[-1], evidence) == (newest, cells[newest].split()[2]), name
        if name != "K40":  # its machine has CUDA 11.4
            assert cells[newest].startswith("cu" + cuda.replace(".", "")), name
        released = [version for version in planned if " released " in cells[version]]
        assert published.startswith(released[-1] if name != "K40" else "none"), name
