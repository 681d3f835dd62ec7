"""What a lab is made of: a fleet file, read into node descriptions."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from tests.lab.emulation import CPUS
from tests.lab.image import CONTAINERS, SUITE, System
from tests.lab.podman import LabError, LesserCpuError

HARDWARE = Path(__file__).parent / "hardware"
FLEETS = Path(__file__).parent / "fleets"


@dataclass(frozen=True, kw_only=True)
class User:
    """A login besides `fleet`."""

    name: str
    password: str | None = None
    sudo: str = "none"
    shell: str = "/bin/bash"
    key: bool = False

    def __post_init__(self) -> None:
        if self.sudo not in ("none", "password", "nopasswd"):
            raise LabError(f"user {self.name}: sudo is password, nopasswd or none")


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node of a fleet file; README.md says what each field does."""

    name: str
    hardware: str | None = None
    cpu: str | None = None
    gpu: bool = True
    groups: Sequence[str] = ()
    memory: str | None = None
    namespaces: bool = True
    suite: str = SUITE
    containers: bool = False
    behind: str | None = None
    users: Sequence[User] = ()
    volumes: Sequence[str] = ()
    setup: str = ""
    vars: Mapping[str, Any] = field(default_factory=dict)
    capture: Path | None = None

    @property
    def arch(self) -> str:
        """The architecture that its programs are for."""
        return CPUS[self.cpu].arch if self.cpu else platform.machine()

    @property
    def system(self) -> System:
        """What its image is made of."""
        return System(self.arch, self.suite, CONTAINERS if self.containers else ())

    @property
    def inventory_groups(self) -> list[str]:
        names = [self.hardware.rstrip("/").rpartition("/")[2]] if self.hardware else []
        return [re.sub(r"\W", "_", name) for name in [*names, *self.groups]]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    nodes: Mapping[str, NodeSpec]
    vars: Mapping[str, Any]


def load_fleet(path: Path) -> Fleet:
    try:
        return parse_fleet(yaml.safe_load(path.read_text()), beside=path.parent)
    except (OSError, yaml.YAMLError) as error:
        raise LabError(f"{path} cannot be read as a fleet file: {error}") from error


def parse_fleet(document: Any, *, beside: Path = Path()) -> Fleet:
    if not isinstance(document, Mapping) or not isinstance(document.get("nodes"), Mapping):
        raise LabError("a fleet is a mapping with `nodes:`; see tests/lab/README.md")
    nodes = {name: _node(name, said or {}, beside) for name, said in document["nodes"].items()}
    for node in nodes.values():
        if node.behind is not None and node.behind not in nodes:
            raise LabError(f"{node.name} is behind {node.behind}, which this fleet lacks")
    return Fleet(nodes=nodes, vars=document.get("vars") or {})


def _node(name: str, said: Mapping[str, Any], beside: Path) -> NodeSpec:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,40}[a-z0-9])?", name):
        raise LabError(f"{name!r} cannot be a node's name: it is a host name in lower case")
    unknown = set(said) - {f.name for f in fields(NodeSpec)} | set(said) & {"name", "capture"}
    if unknown:
        raise LabError(f"{name}: unknown {', '.join(sorted(unknown))}; see tests/lab/README.md")
    users = tuple(User(**user) for user in said.get("users", ()))
    hardware = said.get("hardware")
    if cpu := said.get("cpu"):
        if cpu not in CPUS:
            raise LabError(f"{name}: no CPU {cpu!r}; the lab emulates {', '.join(CPUS)}")
        hardware = hardware or CPUS[cpu].hardware
    capture = _capture(name, hardware, beside)
    about = {"name": name, "users": users, "hardware": hardware, "capture": capture}
    return NodeSpec(**{**said, **about})


def _capture(name: str, hardware: str | None, beside: Path) -> Path | None:
    if hardware is None:
        return None
    for folder in (HARDWARE / hardware, beside / hardware):
        if (folder / "cpuinfo").is_file():
            return folder.resolve()
    known = ", ".join(sorted(f.name for f in HARDWARE.iterdir() if f.is_dir()))
    raise LabError(f"{name}: no cpuinfo in {hardware}; a capture folder or one of {known}")


# What sets each rung apart from the one before it, as /proc/cpuinfo says it; weakest first.
RUNGS = {
    "x86-64-v2": {"cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2"},
    "avx": {"avx"},
    "avx2": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx512vnni": {"avx512_vnni"},
}


def runnable() -> list[str]:
    """Return the rungs whose code this machine's CPU runs, weakest first.

    LAB_CPU names the highest one, so that a machine shows what a lesser machine would.
    """
    able = _rungs(Path("/proc/cpuinfo"))
    highest = os.environ.get("LAB_CPU")
    if not highest:
        return able
    if highest not in able:
        raise LabError(f"LAB_CPU={highest}: this machine's CPU runs {', '.join(able) or 'no rung'}")
    return able[: able.index(highest) + 1]


def require_cpu(fleet: Fleet) -> None:
    """Raise LesserCpuError if a node shows a CPU whose code this machine's CPU does not run."""
    able = runnable()
    for node in fleet.nodes.values():
        rungs = _rungs(node.capture / "cpuinfo") if node.capture and not node.cpu else []
        if not set(rungs) <= set(able):
            mine = f"this machine's CPU runs {', '.join(able) or 'no rung'}"
            raise LesserCpuError(f"{node.name} needs {rungs[-1]}; {mine}")


def default_fleet() -> dict[str, Any]:
    """Return two nodes for each of the three highest rungs: the two differ in their GPU.

    A machine that runs fewer rungs has fewer pairs.
    """
    rungs = [rung for rung in runnable() if rung != "avx512vnni"][-3:]
    if not rungs:
        raise LesserCpuError(
            "the default lab needs an x86-64-v2 CPU; pass a fleet of your own (--fleet)"
        )
    return {
        "nodes": {
            f"{rung}-{number}": {"hardware": rung, "gpu": number == 1}
            for rung in rungs
            for number in (1, 2)
        }
    }


def _rungs(cpuinfo: Path) -> list[str]:
    flags = _flags(cpuinfo)
    return list(takewhile(lambda rung: RUNGS[rung] <= flags, RUNGS))


def _flags(cpuinfo: Path) -> set[str]:
    found = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    return set(found[1].split()) if found else set()
