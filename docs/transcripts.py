"""Run the commands that the pages show, and write into the pages what they print.

In: docs/transcripts/NAME.sh, whose steps begin with `## STEP`, and pages with the comments
`<!-- transcript: NAME/STEP -->` and `<!-- end of transcript -->`. Out: between these comments, the
commands and their output. `python docs/transcripts.py` runs what this machine can run, with names
only these; `--check` changes nothing, and names each block that the program no longer prints so.

First lines of a transcript: `# needs:` index (a package index), lab (`make lab LAB=book`), long (it
takes minutes); `# files: SOURCE=NAME …` are copied into its folder. Long ones run with `--long`, or
by name. So do the steps from one marked `## STEP (long)` on; the output of a step marked
`(machine)` depends on this machine, and counts only with `--long`, too.
A command may end in `#> FILTER`: shell code that the page does not show, applied to the output.
Times, hashes, sizes and paths do not count: a block that differs in these alone stays as it is.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "transcripts"
LAB = ROOT / ".lab" / "book" / "inventory.yml"
WIDTH = "100"
BLOCK = re.compile(
    r"(?ms)^<!-- transcript: (?P<name>[\w-]+/[\w-]+) -->\n(?P<text>.*?)^<!-- end of transcript -->$"
)
_RUNGS = r"\b(?:x86-64(?:-v2)?|x8664(?:v2)?|avx512(?:vnni|bf16|_bf16)?|avx2|avx|amx)\b"


class Step(NamedTuple):
    """What a page shows of a step, and what runs for it."""

    shown: str
    run: str
    needs: str


class Transcript:
    """A file with commands."""

    def __init__(self, path: Path) -> None:
        head, *parts = re.split(r"(?m)^## ", path.read_text("utf-8"))
        said = dict(re.findall(r"(?m)^# (needs|files): (.*)$", head))
        self.name = path.stem
        self.needs = frozenset(said.get("needs", "").split())
        self.files = [each.split("=") for each in said.get("files", "").split()]
        steps = (part.partition("\n") for part in parts)
        self.steps = dict(_step(name, text.strip()) for name, _, text in steps)

    def run(self, *, long: bool = True) -> dict[str, str]:
        """Return the output of each step, or of the quick ones, from a folder of its own."""
        steps = itertools.takewhile(
            lambda each: long or each[1].needs != "long", self.steps.items()
        )
        with tempfile.TemporaryDirectory() as place:
            home = Path(place, "home", "ops")
            folder = home / "fleet"
            folder.mkdir(parents=True)
            for source, name in self.files:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copyfile
                copy(ROOT / source, folder / name)
            if "lab" in self.needs:
                shutil.copyfile(LAB, folder / "inventory.yml")
            outputs = {name: _tidy(_output(step.run, home, folder), place) for name, step in steps}
        return {
            name: output
            for name, output in outputs.items()
            if long or self.steps[name].needs != "machine"
        }


def _step(title: str, text: str) -> tuple[str, Step]:
    name, _, needs = title.partition(" (")
    shown = re.sub(r"(?m) *#> .*$", "", text)
    run = re.sub(r"(?m)^(.*?) *#> (.*)$", r"{ \1 ; } 2>&1 \2", text)
    return name, Step(shown, run, needs.rstrip(")"))


def _output(commands: str, home: Path, folder: Path) -> str:
    keep = ("UV_", "PIP_", "SSL_", "LANG", "LC_")
    environment = {key: value for key, value in os.environ.items() if key.startswith(keep)} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": WIDTH,
        "NO_COLOR": "1",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
    }
    known = f'ssh() {{ command ssh -F {LAB.parent}/ssh_config "$@"; }}\n' if LAB.exists() else ""
    done = subprocess.run(
        ["bash", "-c", known + commands], cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.stdout


def _tidy(text: str, place: str) -> str:
    text = text.replace(str(Path(sys.executable).parent), "/home/ops/.venv/bin")
    text = text.replace(os.path.realpath(place), "").replace(place, "").replace(str(ROOT), "")
    return re.sub(r"[ \t]+$", "", text, flags=re.M).rstrip("\n")


def block(step: Step, output: str) -> str:
    """Return the text between the comments of a page."""
    said = f"```text\n{output}\n```\n" if output else ""
    return f"```sh\n{step.shown}\n```\n{said}"


def is_alike(one: str, other: str, *, on_nodes: bool = False) -> bool:
    """Whether two blocks say the same; on real nodes the order of lines does not count."""
    if not on_nodes:
        return essence(one) == essence(other)
    return {essence(line) for line in one.splitlines()} == set(map(essence, other.splitlines()))


def essence(text: str) -> str:
    """Return a text without what differs from run to run: times, hashes, sizes, rungs, spaces."""
    text = re.sub(r"\b[0-9a-f]{8,}\b", "HASH", text)
    text = re.sub(r"\bcp3\d+t?\b|-\d(?=[_.-])", "N", re.sub(_RUNGS, "RUNG", text))
    text = re.sub(r"(?:\d+ h \d\d|\d+ min \d\d|\d+(?:\.\d+)? (?:s|min|h))(?!\w)", "TIME", text)
    return re.sub(r"\s+|-{2,}", " ", re.sub(r"\d+(?:[.,:]\d+)*", "N", text))


def transcripts() -> dict[str, Transcript]:
    """Return all transcripts by name."""
    return {path.stem: Transcript(path) for path in sorted(FOLDER.glob("*.sh"))}


def lacks(transcript: Transcript, *, long: bool) -> str:
    """Return what it needs to run here, or nothing."""
    if "lab" in transcript.needs and not LAB.exists():
        return "make lab LAB=book"
    return "" if long or "long" not in transcript.needs else "--long, or its name"


def pages() -> Iterator[Path]:
    """Yield the pages that may show transcripts."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def stale(transcript: Transcript, *, write: bool, long: bool = True) -> list[str]:
    """Run a transcript; return the blocks that differ, and write them into their pages."""
    new = {
        f"{transcript.name}/{name}": block(transcript.steps[name], output)
        for name, output in transcript.run(long=long).items()
    }
    differ: list[str] = []

    def current(shown: re.Match[str]) -> str:
        made = new.get(shown["name"])
        if made is None or is_alike(made, shown["text"], on_nodes="lab" in transcript.needs):
            return shown[0]
        differ.append(f"{shown['name']} prints now:\n{made}")
        return f"<!-- transcript: {shown['name']} -->\n{made}<!-- end of transcript -->"

    for page in pages():
        before = page.read_text("utf-8")
        after = BLOCK.sub(current, before)
        if write and after != before:
            page.write_text(after, "utf-8")
    return differ


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check print the blocks that are not current."""
    check, long = "--check" in arguments, "--long" in arguments
    names = [name for name in arguments if not name.startswith("-")]
    found = []
    for name, transcript in transcripts().items():
        if names and name not in names:
            continue
        if missing := lacks(transcript, long=long or bool(names)):
            sys.stderr.write(f"{name}: left as it is, because it needs: {missing}\n")
        else:
            found += stale(transcript, write=not check, long=long or bool(names))
    if check:
        sys.stdout.writelines(f"{each}\n" for each in found)
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
