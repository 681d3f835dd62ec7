"""`make fuzz`: coverage-guided fuzzing of the readers of hostile input, with atheris.

    python -m tests.hostile.fuzz READER --runs 1000000

An input fails that raises anything but a FleetbuildError, or takes more than a second of CPU or
200 MB. It is kept in .cache/fuzz/READER.crash-*, and the found inputs in .cache/fuzz/READER, where
the next run begins.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["fleetbuild"], enable_loader_override=False):
    from fleetbuild.errors import FleetbuildError
    from tests.hostile import readers

READERS = (*readers.TEXT_READERS, "wheel")
KEPT = Path(".cache/fuzz")
_LOOK_AT_MEMORY = 64  # inputs between two looks


class TooMuch(Exception):
    """An input took more time or memory than one may."""


class Limited:
    """Calls a reader, counts, and checks time and memory of each input. Ends the process."""

    def __init__(self, name: str, read: Callable[[bytes], None], runs: int, seconds: float) -> None:
        self._name, self._read = name, read
        self._runs, self._end = runs, time.monotonic() + (seconds or 1e9)
        self._began, self._inputs, self._slowest = time.monotonic(), 0, 0.0
        self._memory = _memory_mb()

    def __call__(self, data: bytes) -> None:
        try:
            self._try(data)
        except BaseException:
            self._say("FAILED")
            raise
        if self._inputs >= self._runs or time.monotonic() > self._end:
            self._say("ok")
            os._exit(0)  # libFuzzer would not return either

    def _try(self, data: bytes) -> None:
        began = time.process_time()
        with suppress(FleetbuildError):
            self._read(data)
        took = time.process_time() - began
        self._inputs += 1
        self._slowest = max(self._slowest, took)
        if took > readers.SECONDS:
            raise TooMuch(f"{took:.2f} s for {len(data)} bytes")
        if self._inputs % _LOOK_AT_MEMORY == 0:
            grown = _memory_mb() - self._memory
            if grown > readers.MEMORY_MB + self._inputs / 10_000:  # libFuzzer keeps what it found
                raise TooMuch(f"{grown} MB")

    def _say(self, how: str) -> None:
        seconds = time.monotonic() - self._began
        print(
            f"{self._name}: {how}, {self._inputs} inputs in {seconds:.0f} s, slowest"
            f" {self._slowest:.3f} s, {_memory_mb() - self._memory} MB beyond the start",
            flush=True,
        )


def _memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("reader", choices=READERS)
    arguments.add_argument("--runs", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=int, default=0, help="0: no limit")
    given = arguments.parse_args()
    found = KEPT / given.reader
    found.mkdir(parents=True, exist_ok=True)
    folder = KEPT / f"{given.reader}.input"
    folder.mkdir(exist_ok=True)
    read, seeds, longest = _reader(given.reader, folder)
    for number, seed in enumerate(seeds):
        (found / f"seed-{number}").write_bytes(seed[:longest])
    limited = Limited(given.reader, read, given.runs, given.seconds)
    options = [f"-max_len={longest}", "-timeout=20", "-rss_limit_mb=2048", "-verbosity=0"]
    options.append(f"-artifact_prefix={KEPT}/{given.reader}.")
    atheris.Setup([sys.argv[0], str(found), *options], limited)
    atheris.Fuzz()


def _reader(name: str, folder: Path) -> tuple[Callable[[bytes], None], list[bytes], int]:
    """Return a function over bytes, valid inputs, and the most bytes of an input."""
    if name == "wheel":
        path = folder / readers.WHEEL_NAME

        def wheel(data: bytes) -> None:
            path.write_bytes(data)
            readers.read_wheel(path)

        return wheel, readers.wheel_seeds(folder / "seeds"), readers.LONGEST_WHEEL
    reader = readers.TEXT_READERS[name]

    def text(data: bytes) -> None:
        reader.read(data.decode("utf-8", "replace"))

    return text, [seed.encode() for seed in reader.seeds], readers.LONGEST_TEXT


if __name__ == "__main__":
    main()
