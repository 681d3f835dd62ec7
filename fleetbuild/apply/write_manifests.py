"""The last stage: what Kubernetes is to know, about nodes that were verified and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.labels import label_up_to_date
from fleetbuild.labelling.serving import serving_now
from fleetbuild.state.directory import write_if_changed
from fleetbuild.text import count


def emit(run: Run, progress: Progress) -> Progress:
    """Label what is left, and write the manifests that differ from those that lie there."""
    progress = label_up_to_date(run, progress)
    so_far = progress.result(run)
    served = tuple(group for group in run.plan.groups if so_far.verified & set(group.nodes))
    if not served:
        return progress
    texts = run.tools.manifests(run.plan, served, serving_now(run.plan, run.state, so_far))
    paths = {run.state.manifests / name: text for name, text in sorted(texts.items())}
    written = [path for path, text in paths.items() if write_if_changed(path, text)]
    # A node that was not reached may still serve what an older manifest says.
    if so_far.exit_code == 0:
        written += _remove(_outdated(run) - paths.keys())
    if written:
        run.tell("manifests", "ok", f"{count(len(written), 'file')} in {run.state.manifests}")
    return replace(
        progress,
        manifests=tuple(str(path) for path in paths),
        changed=progress.changed or bool(written),
    )


def _outdated(run: Run) -> set[Path]:
    """The files that the last apply wrote."""
    saved = run.state.last_result()
    paths = (Path(path) for path in saved.result.manifests) if saved else ()
    return {path for path in paths if path.is_relative_to(run.state.manifests)}


def _remove(paths: set[Path]) -> list[Path]:
    for path in paths:
        path.unlink(missing_ok=True)
    return sorted(paths)
