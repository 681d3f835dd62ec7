"""Last stage, emit: notify followers of up-to-date nodes, and write the files of extensions.

In: the results of all nodes. Out: files in the state directory, such as Kubernetes manifests.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.followers import notify_up_to_date
from fleetbuild.apply.serving import serving_now
from fleetbuild.foreign_settings import refuse_outside
from fleetbuild.state import write_if_changed
from fleetbuild.text import count


def emit(run: Run, progress: Progress) -> Progress:
    """Notify followers of the up-to-date nodes, and write the files that have changed."""
    progress = notify_up_to_date(run, progress)
    result = progress.result(run)
    served = tuple(group for group in run.plan.groups if result.verified & set(group.nodes))
    if not served:
        return progress
    texts = run.tools.written(run.plan, served, serving_now(run.plan, run.state, result))
    refuse_outside(run.state.manifests, texts)
    paths = {run.state.manifests / name: text for name, text in sorted(texts.items())}
    written = [path for path, text in paths.items() if write_if_changed(path, text)]
    # An unreached node may still serve the release of an older manifest, so keep that file.
    if result.exit_code == 0:
        written += _remove(_outdated(run) - paths.keys())
    if written:
        run.tell("manifests", "ok", f"{count(len(written), 'file')} in {run.state.manifests}")
    return replace(
        progress,
        manifests=tuple(str(path) for path in paths),
        changed=progress.changed or bool(written),
    )


def _outdated(run: Run) -> set[Path]:
    """Return the manifest files that the last apply wrote."""
    saved = run.state.last_result()
    paths = (Path(path) for path in saved.result.manifests) if saved else ()
    return {
        path
        for path in paths
        if path.is_relative_to(run.state.manifests) and ".." not in path.parts
    }


def _remove(paths: set[Path]) -> list[Path]:
    for path in paths:
        path.unlink(missing_ok=True)
    return sorted(paths)
