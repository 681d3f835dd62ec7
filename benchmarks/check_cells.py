"""Predicted beside run: what `fleetbuild check` reads from wheels, and what QEMU does with them.

`python -m benchmarks.check_cells --for Nehalem --for Haswell STACK...` prints a Markdown table.
A STACK is requirements joined by commas, which are resolved and installed together.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from fleetbuild.audit.needs import read_needs
from fleetbuild.audit.verdict import VERDICT_WORDS, Verdict, judge
from fleetbuild.plan.check.emulate import installed, qemu_version, require_emulation, run_emulated
from fleetbuild.plan.check.kinds import named_kinds
from fleetbuild.plan.check.results import Results
from fleetbuild.plan.resolve.uv import resolve
from fleetbuild.store import Store
from fleetbuild.store.index_config import index_settings

OPEN = Verdict(verdict="runs")  # so that only the run itself decides


def say(line: str = "") -> None:
    """Write a line at once: the table grows for minutes."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print the table, and how many cells agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".fleetbuild"))
    parser.add_argument("--for", dest="kinds", action="append", required=True)
    parser.add_argument("stacks", nargs="+")
    given = parser.parse_args()
    require_emulation()
    store = Store(given.state / "store", index_settings())
    results, kept = Results(given.state / "checks"), given.state / "cells"
    kept.mkdir(parents=True, exist_ok=True)
    kinds = named_kinds(given.kinds)
    counts: Counter[str] = Counter()
    say(f"| wheel | {' | '.join(given.kinds)} |")
    say("|---" * (1 + len(kinds)) + "|")
    with ExitStack() as environments:
        seen = set()
        for stack in given.stacks:
            answer = resolve(kinds[0].request(stack.split(",")), store.settings)
            if answer.problem:
                sys.exit(answer.problem)
            folder = None
            for file in answer.wheels:
                path = store.fetch(file)
                known = results.of(file.sha256, file.file)
                needs = known.needs
                if needs is None:
                    needs = read_needs(path)
                    known = known.model_copy(update={"needs": needs})
                    results.keep(known)
                if not needs.files or file.sha256 in seen:
                    continue
                seen.add(file.sha256)
                cells = []
                for kind in kinds:
                    predicted = judge(
                        needs, package=file.name, arch=kind.arch, features=kind.features
                    )
                    note = kept / f"{file.sha256}-{kind.name}-{qemu_version()}.json"
                    if not note.exists():
                        folder = folder or environments.enter_context(
                            installed([store.fetch(each) for each in answer.wheels])
                        )
                        ran = run_emulated(kind, file.name, path, folder, OPEN)
                        note.write_text(ran.model_dump_json())
                    ran = Verdict.model_validate(json.loads(note.read_text()))
                    counts[compare(predicted, ran)] += 1
                    words = f"{VERDICT_WORDS[predicted.verdict]} / {VERDICT_WORDS[ran.verdict]}"
                    cells.append(
                        words if predicted.verdict != ran.verdict else VERDICT_WORDS[ran.verdict]
                    )
                say(f"| {file.name} {file.version} | {' | '.join(cells)} |")
    say()
    say(", ".join(f"{number} {what}" for what, number in counts.most_common()))


def compare(predicted: Verdict, ran: Verdict) -> str:
    """Return how a prediction and a run go together."""
    if ran.verdict == "undecided":
        return "not told by the run"
    if predicted.verdict == "undecided":
        return "not decided by reading, and it " + ("died" if ran.dies else "ran")
    if predicted.dies == ran.dies:
        return "agree"
    return "deaths predicted as fine" if ran.dies else "predicted deaths that ran"


if __name__ == "__main__":
    main()
