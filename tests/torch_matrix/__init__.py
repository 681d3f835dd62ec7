"""What torch each kind of machine gets, by version: `python -m tests.torch_matrix` prints it.

matrix.md is the same table, checked by hand against upstream; the test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Facts, Plan
from fleetbuild.plan.decide.requests import toolkit_request
from fleetbuild.plan.decide.wheels.published import choose_published, must_be_read
from fleetbuild.probe.captures import load_captures
from fleetbuild.probe.parsing.facts import facts_of
from tests.factories.fleets import drafted, locked, package, planned

HERE = Path(__file__).parent
MATRIX = HERE / "matrix.md"
DATA = HERE.parents[0] / "unit" / "data"
VERSIONS = ("2.0.1", "2.6.0", "2.9.1", "2.12.1", "2.15.0")
MACHINES: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "machines.yml").read_text())
# Why a cell is blocked, or why PyPI's wheel does not fit: a part of the plan's sentence -> a word.
CAUSES = {
    "no GPU code": "CPU only",
    "no code for SM": "SM",
    "JetPack": "JetPack",
    "does not support SM": "SM",
    "SM": "CUDA",
    "Driver": "driver",
    "driver": "driver",
    "Python": "Python",
    "it is built for": "CPU",
}


def capture(row: dict[str, Any]) -> dict[str, str]:
    """What the probe would print on this machine."""
    if "from" in row:
        place = DATA / row["from"]
        return dict(load_captures(place.parent, [place.name])[place.name])
    cpu, gcc = row["cpu"], row.get("gcc", "11.4.0")
    rung = RUNGS.get(cpu)
    arch = rung.arch if rung else "aarch64" if "cortex" in cpu else "x86_64"
    words = " ".join(sorted(rung.features)) if rung else ""
    label = "flags" if arch == "x86_64" else "Features"
    tools = [f"gcc {gcc}", f"g++ {gcc}", *([f"nvcc {row['nvcc']}"] if "nvcc" in row else ())]
    soabi = f"cpython-311-{arch}-linux-gnu"
    texts = {
        "uname": f"Linux 6.8.0 {arch}",
        "cpuinfo": f"processor : 0\n{label} : fpu {words}\n"
        if rung
        else (HERE.parents[1] / cpu / "cpuinfo").read_text(),
        "os-release": 'ID=ubuntu\nVERSION_ID="22.04"\n',
        "libc": "glibc 2.35",
        "meminfo": "MemTotal: 67108864 kB\nMemAvailable: 62720000 kB\n",
        "nproc": "8",
        "disk": "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        "/dev/sda1 838860800 419430400 419430400 50% /\n",
        "python": f"/usr/bin/python3.11 3.11.9 {soabi} venv headers",
        "toolchain": "\n".join(tools),
    }
    if "gpus" in row:
        rows = [
            f"{number}, {name}, {sm}, {row['driver']}, 16384 MiB, GPU-{number}"
            for number, (name, sm) in enumerate(row["gpus"])
        ]
        header = "index, name, compute_cap, driver_version, memory.total [MiB], uuid"
        texts["nvidia-smi"] = "\n".join([header, *rows])
    if "chip" in row:
        board, chip = row["chip"]
        texts["device-tree"] = f"model: {board}\ncompatible: nvidia,{chip}\ndevice: /dev/nvhost-gpu"
    texts |= {name: row[name] for name in ("kfd",) if name in row}
    return texts | ({"lspci": "\n".join(row["others"])} if "others" in row else {})


@cache
def machines() -> dict[str, Facts]:
    """The facts of each machine, read from its capture as the product reads it."""
    return {name: facts_of(capture(row)) for name, row in MACHINES.items()}


def cause(sentence: str) -> str:
    """The word for a reason."""
    return next((word for part, word in CAUSES.items() if part in sentence), sentence)


def cell(facts: Facts, version: str) -> str:
    """The plan for one machine and torch, in the words that matrix.md explains."""
    torch, fleet = package("torch", version), {"node": facts}
    plan = planned(fleet, packages=[torch])
    node = plan.nodes["node"]
    if node.state != "ok":
        return f"none: {cause(node.reason or '')}"
    group = plan.groups[0]
    wheel = group.wheels[0]
    words = ["cpu"]
    if wheel.cuda:
        sms = wheel.environment["TORCH_CUDA_ARCH_LIST"]
        words = ["cu" + wheel.cuda.replace(".", ""), sms, wheel.evidence or "", origin(fleet, plan)]
    file = locked("torch", version)
    pypi = choose_published(torch, group.target, [facts], file, versions={"torch": version})
    read = must_be_read(torch, group.target, file)
    words.append("PyPI?" if read else "PyPI" if pypi.file else f"not PyPI: {cause(pypi.why)}")
    return " ".join(words)


def origin(fleet: dict[str, Facts], plan: Plan) -> str:
    """Where the CUDA toolkit of the build comes from."""
    wheel = plan.groups[0].wheels[0]
    if wheel.toolkit_wheels:
        return "archives"
    if not wheel.requires.to_supply:
        return "installed"
    (draft,) = drafted(fleet, [package("torch", wheel.version)]).wheels
    return "wheels" if toolkit_request(draft, fleet) else "to supply"


def table() -> Iterator[str]:
    """The lines of the table."""
    yield "| machine | " + " | ".join(VERSIONS) + " |"
    yield "|---" * (len(VERSIONS) + 1) + "|"
    for name, facts in machines().items():
        yield f"| {name} | " + " | ".join(cell(facts, version) for version in VERSIONS) + " |"
