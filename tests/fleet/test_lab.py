"""The lab keeps its promises: real ssh, the hardware of the fleet file, and no way out."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab, LabError, LesserCpuError, default_fleet, runnable
from tests.lab.fleet import HARDWARE, RUNGS, parse_fleet, require_cpu

MakeLab = Callable[[dict[str, Any] | None], Lab]


@pytest.fixture(scope="module", params=[rung for rung in RUNGS if rung != "avx512vnni"])
def lab(request: pytest.FixtureRequest, make_lab: MakeLab) -> Iterator[Lab]:
    """The default fleet, as a machine with this highest rung has it."""
    if request.param not in runnable():
        pytest.skip(f"{request.param}: this machine's CPU runs {', '.join(runnable())}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_CPU", request.param)
        yield make_lab(None)


def ssh(lab: Lab, node: str, command: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(lab.ssh_config), "-o", "BatchMode=yes", node, command]
    return subprocess.run(
        words, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=30
    )


def ansible(lab: Lab, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("ansible")
    return subprocess.run(
        [str(program), "-i", str(lab.inventory), *words],
        text=True,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=120,
    )


def test_a_lesser_cpu_has_fewer_rungs_and_refuses_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAB_CPU", "x86-64-v2")
    assert runnable() == ["x86-64-v2"]
    assert set(default_fleet()["nodes"]) == {"x86-64-v2-1", "x86-64-v2-2"}
    require_cpu(parse_fleet({"nodes": {"a": {"hardware": "x86-64-v2"}, "b": {"cpu": "Haswell"}}}))
    for above in ("avx", str(HARDWARE / "nodriver")):
        with pytest.raises(
            LesserCpuError, match=r"a needs avx2?; this machine's CPU runs x86-64-v2"
        ):
            require_cpu(parse_fleet({"nodes": {"a": {"hardware": above}}}))
    monkeypatch.setenv("LAB_CPU", "pentium")
    with pytest.raises(LabError, match="LAB_CPU=pentium"):
        runnable()


def test_nodes_show_their_captures_hardware(lab: Lab) -> None:
    for node in lab.nodes.values():
        assert node.capture is not None
        cpuinfo = ssh(lab, node.name, "cat /proc/cpuinfo").stdout
        assert cpuinfo == (node.capture / "cpuinfo").read_text()


def test_nvidia_smi_prints_the_columns_that_are_asked_for(lab: Lab) -> None:
    node = next(name for name, node in lab.nodes.items() if node.spec.gpu)
    capture = lab.nodes[node].capture
    assert capture is not None
    columns = "index,name,compute_cap,driver_version,memory.total,uuid"
    full = ssh(lab, node, f"nvidia-smi --query-gpu={columns} --format=csv")
    assert full.stdout == (capture / "nvidia-smi").read_text()
    bare = ssh(lab, node, "nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits")
    assert bare.stdout.strip().isdigit()
    refused = ssh(lab, node, "nvidia-smi --query-gpu=index,bogus --format=csv")
    assert 'Field "bogus" is not a valid field to query.' in refused.stdout
    assert refused.returncode != 0


def test_a_node_without_gpu_shows_no_gpu_files(lab: Lab) -> None:
    node = next(name for name, node in lab.nodes.items() if not node.spec.gpu)
    assert ssh(lab, node, "command -v nvidia-smi").returncode != 0
    assert ssh(lab, node, "ls /sys/bus/pci/devices").stdout == ""


def test_nodes_reach_neither_the_outside_nor_an_index(lab: Lab) -> None:
    for node in lab.nodes:
        assert ssh(lab, node, "ip route show default").stdout == ""


def test_ansible_reaches_every_node_and_becomes_root(lab: Lab) -> None:
    done = ansible(lab, "all", "--become", "-m", "command", "-a", "id -u")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rc=0") == len(lab.nodes)


def test_a_stopped_node_is_unreachable_until_it_starts_again(lab: Lab) -> None:
    node = next(iter(lab.nodes))
    lab.stop(node)
    try:
        assert ssh(lab, node, "true").returncode == 255
    finally:
        lab.start(node)
    assert ssh(lab, node, "true").returncode == 0


def test_orphans_are_reaped(lab: Lab) -> None:
    node = next(iter(lab.nodes))
    assert ssh(lab, node, "(sleep 0.1 &) >/dev/null 2>&1").returncode == 0
    time.sleep(0.5)
    assert "Z" not in ssh(lab, node, "ps -eo stat=").stdout
