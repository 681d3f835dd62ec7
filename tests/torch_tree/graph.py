"""CMake's build graph of torch on a node of the lab: which files are compiled, and how."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab import Lab

# Options beyond each rung.
BEYOND = {
    "avx": r"avx2|fma4?|f16c|bmi2?|avx512\w*|amx\S*|arch=(?!x86-64-v2\s)\S+",
    "avx2": r"fma4|avx512\w*|amx\S*|arch=(?!x86-64-v[23]\s)\S+",
    "avx512": r"fma4|avx512(?:vnni|bf16|fp16|ifma|vbmi2?)|amx\S*|arch=(?!x86-64-v[234]\s)\S+",
}
# Code of others that is compiled for more than the target, and is run only where the CPU has it.
CHOSEN_AT_RUN_TIME = {
    "third_party/XNNPACK/": "XNNPACK asks cpuinfo and fills its tables of kernels by what it says",
    "third_party/sleef/": "Sleef's purecfma is entered by its dispatcher alone, and has no switch",
    "third_party/fbgemm/": "FBGEMM asks cpuinfo before it enters its AVX-512 kernels",
}
PARTS = {
    "FBGEMM": "third_party/fbgemm/src/",
    "NNPACK": "third_party/NNPACK/src/",
    "MKLDNN": "third_party/ideep/mkl-dnn/src/",
    "XNNPACK": "third_party/XNNPACK/src/",
}


@dataclass
class Graph:
    """The build graph of one configuration, and what CMake and the build said."""

    commands: list[dict[str, str]]
    cache: str
    ninja: str
    log: str

    def beyond(self, rung: str) -> Counter[str]:
        """Objects that are compiled for more than this rung, counted by whose code they are."""
        above = re.compile(rf"\s-m(?:{BEYOND[rung]})(?=\s)")
        return Counter(owner(each) for each in self.commands if above.search(each["command"]))

    def own(self) -> Iterator[str]:
        """The commands of torch's own C and C++."""
        for each in self.commands:
            if "third_party" not in owner_path(each) and re.search(r"\.(c|cc|cpp)$", each["file"]):
                yield each["command"]

    def parts(self) -> set[str]:
        """The CPU libraries that are compiled."""
        files = [each["file"] for each in self.commands]
        return {part for part, path in PARTS.items() if any(path in file for file in files)}

    def says(self, option: str) -> str:
        found = re.search(rf"^{option}:\w+=(.*)$", self.cache, re.MULTILINE)
        return found[1] if found else ""


def owner_path(command: dict[str, str]) -> str:
    path = command["file"].partition("/src/")[2]
    return path.removeprefix("build/").replace("sleef/src", "third_party/sleef/src", 1)


def owner(command: dict[str, str]) -> str:
    path = owner_path(command)
    return next((owner for owner in CHOSEN_AT_RUN_TIME if owner in path), "torch's own")


def read_graph(lab: Lab, node: str, key: str, log: str | None) -> Graph:
    """The graph in this artifact's build folder."""
    assert log
    said = Path(log).read_text()
    build = f".cache/fleetbuild/builds/{key}/work/src/build"
    assert lab.exec(node, f"test -f ~/{build}/build.ninja", user="fleet").returncode == 0, said[
        -3000:
    ]
    texts = (
        lab.exec(node, f"cat ~/{build}/{name}", user="fleet", check=True).stdout
        for name in ("compile_commands.json", "CMakeCache.txt", "build.ninja")
    )
    commands, cache, ninja = texts
    return Graph(json.loads(commands), cache, ninja, said)
