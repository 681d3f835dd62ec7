"""Compare the GPU code that fleetbuild reads with what NVIDIA's cuobjdump lists.

`python -m benchmarks.cuobjdump` downloads each wheel of cuobjdump.yml that was not compared yet and
writes docs/gpu-code.md; `--write` only writes it. `python -m benchmarks.cuobjdump FILE.so` compares
one file.
"""

from __future__ import annotations

import argparse
import mmap
import re
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import TypeAdapter

from benchmarks.baselines import ROOT, say, table
from fleetbuild.audit.elf import MAGIC, Elf
from fleetbuild.audit.fatbin import containers
from fleetbuild.audit.wheel import audit_elf
from fleetbuild.files import write_atomically
from fleetbuild.hardware.gpus import sm_order
from fleetbuild.models._base import Frozen

HERE = Path(__file__)
PAGE = ROOT / "docs" / "gpu-code.md"
PART = re.compile(r"Fatbin (elf|ptx) code:")
ARCH = re.compile(r"arch = sm_(\d+)(\d)([af]?)\s*$")
CUBIN = re.compile(r"sm_(\d+)(\d)([af]?)\.cubin$")
FATBIN, CUDA = struct.pack("<I", 0xBA55ED50), struct.pack("<H", 190)
LARGEST_CUBIN = 4 << 20  # of those that are in no fat binary
BEGINNING = re.compile(re.escape(FATBIN) + b"|" + re.escape(MAGIC))
KERNEL = re.compile(r"^(?:STT_)?FUNC\s+\w+\s+(?:\w+\s+ENTRY|STO_ENTRY)\s+(?!U\s)(\S+)")
KERNEL_OF_PTX = re.compile(r"\.entry\s+([\w$.]+)")


class Listing(NamedTuple):
    """GPU code by SM, spelled as in TORCH_CUDA_ARCH_LIST: how many entries, which kernels."""

    entries: Counter[str]
    kernels: defaultdict[str, set[str]]


class Compared(Frozen):
    """One file of a wheel: how much GPU code it has, and each difference as a sentence."""

    wheel: str
    file: str
    megabytes: int
    codes: tuple[str, ...]
    entries: int = 0
    kernels: int = 0  # of all codes
    elsewhere: int = 0  # pieces of code outside the sections in which cuobjdump looks
    differences: tuple[str, ...] = ()
    tool: str | None = None  # the first one that lists this file


COMPARED = TypeAdapter(list[Compared])


def code_of(match: re.Match[str]) -> str:
    """Return the SM of an arch such as sm_90a, as 9.0a."""
    return f"{match[1]}.{match[2]}{match[3]}"


def elsewhere(data: bytes, sections: list[tuple[int, int]]) -> Iterator[tuple[str, bytes]]:
    """Yield GPU code outside the sections in which cuobjdump looks, as files to show it."""
    at = 1  # the file itself is an ELF file
    for start, end in [*sorted(sections), (len(data), len(data))]:
        while (match := BEGINNING.search(data, at, start)) is not None:
            at = match.start() + 4
            if match[0] == FATBIN:
                _, version, header, size = struct.unpack_from("<IHHQ", data, match.start())
                if version == 1 and header == 16 and match.start() + header + size <= start:
                    at = match.start() + header + size
                    yield ".fatbin", data[match.start() : at]
            elif data[at + 14 : at + 16] == CUDA:
                # Where it ends is not told; what follows does not disturb cuobjdump.
                yield ".cubin", data[match.start() : match.start() + LARGEST_CUBIN]
        at = max(at, end)


class Refused(Exception):
    """cuobjdump does not list a file; the text is its own."""


class Tool:
    """A cuobjdump that a wheel brings."""

    def __init__(self, folder: Path, requirement: str) -> None:
        self.name = requirement
        with zipfile.ZipFile(download(requirement, folder)) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith("/bin/cuobjdump"))
            self._path = Path(wheel.extract(member, folder / requirement))
        self._path.chmod(0o755)

    def listing(self, path: Path) -> Listing:
        """Return what cuobjdump lists for a file, or for machine code alone (.cubin)."""
        entries: Counter[str] = Counter()
        kernels: defaultdict[str, set[str]] = defaultdict(set)
        alone = path.suffix == ".cubin"
        if alone:
            names = map(CUBIN.search, self._lines("-lelf", path))
            name = next(filter(None, names), None)
            if name is None:
                raise Refused(path.name)
            entries[code_of(name)] += 1
        shown = [("-symbols", "elf", KERNEL), ("-ptx", "ptx", KERNEL_OF_PTX)]
        for option, part, pattern in shown[:1] if alone else shown:
            current, code = ("elf", next(iter(entries))) if alone else ("", "")
            for line in self._lines(option, path):
                if match := PART.match(line):
                    current = match[1]
                elif current != part:
                    continue
                elif match := ARCH.match(line):
                    code = code_of(match) + ("+PTX" if part == "ptx" else "")
                    entries[code] += 1
                elif match := pattern.search(line):
                    kernels[code].add(match[1])
        return Listing(entries, kernels)

    def _lines(self, option: str, path: Path) -> Iterator[str]:
        # -all: code that is linked at run time as well.
        command = [str(self._path), "-all", option, str(path)]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
            ) as run,
        ):
            yield from run.stdout or ()
            code = run.wait()
            errors.seek(0)
            said = errors.read()
        if code and "does not contain device code" not in said:
            raise Refused(said.replace(f"'{path}'", "").strip())


def read(path: Path) -> tuple[Listing, tuple[str, ...], list[tuple[str, bytes]]]:
    """Return what fleetbuild reads in a file and could not read, and code in unusual places."""
    with path.open("rb") as file:
        data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        sections = Elf(data).gpu_sections
        entries = Counter(code.spelled for each in containers(data, sections) for code in each)
        audit = audit_elf(path.name, data)
        hidden = list(elsewhere(data, sections))
    kernels: defaultdict[str, set[str]] = defaultdict(set)
    for group in audit.kernels:
        for code in group.codes:
            kernels[code].update(group.names)
    return Listing(entries, kernels), audit.unread, hidden


def order(code: str) -> tuple[tuple[int, int, str], str]:
    """Return the key that sorts codes such as 9.0, 9.0a and 9.0+PTX."""
    return sm_order(code.removesuffix("+PTX")), code


def first_listing(tools: Sequence[Tool], path: Path) -> tuple[Tool, Listing] | None:
    """Return the listing of the first tool that lists a file."""
    for tool in tools:
        with suppress(Refused):
            return tool, tool.listing(path)
    return None


def compare(tools: Sequence[Tool], wheel: str, name: str, path: Path) -> Compared:
    """Compare one file."""
    ours, unread, hidden = read(path)
    megabytes = round(path.stat().st_size / 1e6)
    listed = first_listing(tools, path)
    if listed is None:
        codes = tuple(sorted(ours.entries, key=order))
        return Compared(wheel=wheel, file=name, megabytes=megabytes, codes=codes)
    tool, theirs = listed
    differences = [*unread]
    for suffix, content in hidden:
        part = path.with_name(f"part{suffix}")
        part.write_bytes(content)
        listed = first_listing(tools, part)
        found = listed[1] if listed else Listing(Counter(), defaultdict(set))
        if suffix == ".cubin" and not any(found.kernels.values()):
            continue  # it has no kernel
        theirs.entries.update(found.entries)
        for code, names in found.kernels.items():
            theirs.kernels[code].update(names)
    for code in sorted({*ours.entries, *theirs.entries}, key=order):
        if ours.entries[code] != theirs.entries[code]:
            differences.append(
                f"{code}: {ours.entries[code]} entries, cuobjdump lists {theirs.entries[code]}"
            )
        for missing, who in (
            (theirs.kernels[code] - ours.kernels[code], "only cuobjdump lists"),
            (ours.kernels[code] - theirs.kernels[code], "only fleetbuild reads"),
        ):
            if missing:
                differences.append(f"{code}: {who} {len(missing)} kernels: {min(missing)}")
    return Compared(
        wheel=wheel,
        file=name,
        megabytes=megabytes,
        tool=tool.name,
        elsewhere=len(hidden),
        codes=tuple(sorted(theirs.entries, key=order)),
        entries=theirs.entries.total(),
        kernels=sum(map(len, theirs.kernels.values())),
        differences=tuple(differences),
    )


def compare_wheel(tools: Sequence[Tool], wheel: Path) -> Iterator[Compared]:
    """Compare each file of a wheel in which cuobjdump or fleetbuild finds GPU code."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for info in archive.infolist():
            with archive.open(info) as member:
                if member.read(4) != MAGIC:
                    continue
            path = Path(archive.extract(info, folder))
            compared = compare(tools, wheel.name, info.filename, path)
            path.unlink()
            if compared.codes or compared.differences:
                yield compared


def download(requirement: str, folder: Path) -> Path:
    """Download one wheel, without what it requires."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
             "--only-binary=:all:", "--dest", place, requirement],
            check=True,
        )  # fmt: skip
        (path,) = Path(place).iterdir()
        return path.rename(folder / path.name)


def write(kept: list[list[Compared]], tools: list[str]) -> None:
    """Write docs/gpu-code.md."""
    files = [compared for wheel in kept for compared in wheel]
    rows = [
        [
            wheel[0].wheel.removesuffix(".whl").split("-py3")[0].split("-cp3")[0],
            str(len(wheel)),
            ", ".join(sorted({code for each in wheel for code in each.codes}, key=order)),
            str(sum(each.entries for each in wheel)),
            str(sum(each.kernels for each in wheel)),
            str(sum(each.elsewhere for each in wheel)),
            str(sum(len(each.differences) for each in wheel)),
        ]
        for wheel in kept
        if wheel
    ]
    header = ["wheel", "files", "SMs", "entries", "kernels", "elsewhere", "differences"]
    found = [f"- {each.wheel}, {each.file}: {text}" for each in files for text in each.differences]
    text = HERE.with_suffix(".md").read_text("utf-8")
    text = (
        text.replace("@TOOLS@", " and ".join(tools))
        .replace("@DATE@", f"{datetime.now(UTC):%Y-%m-%d}")
        .replace("@FILES@", str(len(files)))
        .replace("@WHEELS@", str(len(rows)))
        .replace("@ENTRIES@", str(sum(each.entries for each in files)))
        .replace("@KERNELS@", str(sum(each.kernels for each in files)))
        .replace("@TABLE@", table(header, rows))
        .replace("@DIFFERENCES@", "\n".join(found) or "Both agree on every entry and kernel.")
    )
    write_atomically(PAGE, text, mode=0o644)


def main() -> None:
    """Compare what has not been compared, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuobjdump")
    parser.add_argument("files", nargs="*", type=Path, help="compare these files or wheels alone")
    parser.add_argument("--state", type=Path, default=ROOT / ".fleetbuild" / "cuobjdump")
    parser.add_argument("--write", action="store_true", help="compare nothing")
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    wanted = yaml.safe_load(HERE.with_suffix(".yml").read_text("utf-8"))
    tools = [] if given.write else [Tool(given.state, name) for name in wanted["tools"]]
    for path in given.files if tools else ():
        is_wheel = path.suffix == ".whl"
        for each in (
            compare_wheel(tools, path) if is_wheel else [compare(tools, "", path.name, path)]
        ):
            say(each.model_dump_json(indent=1))
    if given.files:
        return
    kept = []
    for requirement in wanted["wheels"]:
        result = given.state / f"{requirement}.json"
        if tools and not result.exists():
            wheel = download(requirement, given.state)
            result.write_bytes(COMPARED.dump_json(list(compare_wheel(tools, wheel))))
            wheel.unlink()
            say(requirement)
        if result.exists():
            kept.append(COMPARED.validate_json(result.read_bytes()))
    write(kept, wanted["tools"])


if __name__ == "__main__":
    main()
