"""`fleetbuild emit`: manifests from the last plan, for the nodes that the last apply verified."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fleetbuild.cli import options
from fleetbuild.cli.session import Session
from fleetbuild.errors import UsageError


class Kind(StrEnum):
    """What can be written."""

    K8S = "k8s"
    NFD = "nfd"
    LABELS = "labels"


What = Annotated[
    Kind,
    typer.Argument(
        metavar="KIND", help="k8s: labels and workloads; nfd: feature files; labels: labels alone."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Default: manifests/KIND of the state."),
]


def emit(
    kind: What,
    out: Out = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write Kubernetes manifests from the last plan or apply."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.cli import steps

        made = steps.read_plan(run, None)
        files = fleetbuild.render_manifests(made, kind=kind.value, state_dir=state_dir)
        folder = out or state_dir / "manifests" / kind.value
        written = [str(_write(folder / name, text)) for name, text in files.items()]
        if json:
            run.out.document({"format_version": "1.0", "files": written})
        else:
            run.out.say(*(f"Wrote {file}" for file in written))


def _write(file: Path, text: str) -> Path:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise UsageError(
            f"{file} cannot be written: {problem.strerror}", "name another folder with --out"
        ) from problem
    return file
