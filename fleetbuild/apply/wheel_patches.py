"""Patches of large wheels, for nodes that keep an earlier version of them, over a slow link.

In: the wheels that groups install, and the releases that their nodes serve. Out: the patches that
may be sent in place of wheels, which the store keeps. Runs before a rollout, if
`distribute.bandwidth` is so low that patches are quicker. Each node decides whether it takes one
(module_utils/wheel_patch.py).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetbuild.apply.context import Progress, Run
from fleetbuild.apply.pending import pending_groups, pending_nodes
from fleetbuild.apply.wave import installed_wheels, names_of
from fleetbuild.audit.downloads import installed_size
from fleetbuild.files import ansible_dir, remove_old, replace_file, sha256_of
from fleetbuild.models import Manifest, Plan
from fleetbuild.models.role_parameters import InstalledWheel, WheelPatch
from fleetbuild.programs import run_program

_PROGRAM = "plugins/module_utils/wheel_patch.py"
_SMALLEST = 8_000_000  # bytes of a wheel
_MOST_SOURCES = 3  # for one wheel
_LARGEST = (1 << 31) - 1  # bytes of an unpacked wheel: the largest window of zstd
_WORTH = 0.75  # of the wheel's size, at most
_SAVED = 0.7  # of the wheel's size, usually
_PACE = 10_000_000  # unpacked bytes a second, for the controller's CPU and then a node's
_SECONDS = 600  # for all patches of a run
_DAYS = 30  # without use, after which a patch is removed
_KEPT = 2 << 30  # bytes of patches in the store
Pair = tuple[Path, InstalledWheel]


def add_patches(run: Run, progress: Progress) -> Progress:
    """Return the progress with the patches by which nodes can make wheels; none over a fast link.

    A wheel without a patch is sent whole, so that nothing that happens here fails a run.
    """
    zstd = "" if run.plan.bandwidth is None else _find_zstd()
    if not zstd:
        return progress
    folder = run.state.store / "patches"
    patches: dict[str, tuple[WheelPatch, ...]] = {}
    pairs, ends = _pairs(run, progress), time.monotonic() + _SECONDS
    with suppress(OSError):
        _remove_unused(folder)
    for done, (old, wheel) in enumerate(pairs):
        message = f"making the patch of {wheel.file}"
        run.tell("distribute", "progress", message, done=done, total=len(pairs))
        try:
            patch = _patch(zstd, folder, old, wheel, ends)
        except (OSError, ValueError) as error:
            (why,) = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            warning = f"{wheel.file} is sent whole: its patch could not be made: {why}"
            run.tell("distribute", "warning", warning)
            break  # the others would most likely fail alike
        if patch:
            patches[wheel.sha256] = (*patches.get(wheel.sha256, ()), patch)
    return replace(progress, patches=patches)


def _find_zstd() -> str:
    """Return the path of a zstd that makes patches, or "". It is judged as on nodes."""
    try:
        return run_program(_program(), within=10.0).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _program() -> list[str]:
    return [sys.executable, "-I", "-S", str(ansible_dir() / _PROGRAM)]


def _pairs(run: Run, progress: Progress) -> list[Pair]:
    """Return the wheels to install that are large, each with earlier ones that many nodes have."""
    found: dict[str, tuple[InstalledWheel, Counter[Path]]] = {}
    for group in pending_groups(run.plan, progress.nodes):
        if not group.nodes:  # dependencies of named targets are not fetched
            continue
        wheels = zip(installed_wheels(progress, group), names_of(group), strict=True)
        names = pending_nodes(group, progress.nodes)
        served = _releases(progress.facts[name].release.get(run.plan.release) for name in names)
        machine = group.target.arch
        for wheel, (package, _) in wheels:
            path = Path(wheel.path)
            if not path.is_file() or path.stat().st_size < _SMALLEST:
                continue
            _, sources = found.setdefault(wheel.sha256, (wheel, Counter()))
            for manifest, nodes in served:
                for old in run.tools.wheels.find_served(manifest, package):
                    if _is_source(old, wheel, machine):
                        sources[old] += nodes
    return [
        (old, wheel)
        for wheel, sources in found.values()
        for old, nodes in sources.most_common(_MOST_SOURCES)
        if _pays(run.plan, wheel, nodes)
    ]


def _pays(plan: Plan, wheel: InstalledWheel, nodes: int) -> bool:
    """Return whether a patch is likely to save more time on the link than it takes of the CPUs.

    Nodes that give files to each other need the link for each file once.
    """
    size = wheel.size * nodes
    saved = _SAVED * size / (125_000 * (plan.bandwidth or math.inf))
    return saved > installed_size(wheel.path) / _PACE


def _releases(served: Iterable[Manifest | None]) -> list[tuple[Manifest, int]]:
    """Return one manifest for each set of wheels, and how many nodes serve it."""
    found: dict[object, list[Manifest]] = {}
    for manifest in filter(None, served):
        found.setdefault((manifest.wheels, manifest.dependencies), []).append(manifest)
    return [(manifests[0], len(manifests)) for manifests in found.values()]


def _is_source(old: Path, wheel: InstalledWheel, machine: str) -> bool:
    """Return whether a stored wheel is another one, for the same Python and this machine."""
    same_python = old.name.split("-")[-3:-1] == wheel.file.split("-")[-3:-1]
    fits = old.name.endswith(("any.whl", f"{machine}.whl"))
    return same_python and fits and old.parent.name != wheel.sha256


def _patch(
    zstd: str, folder: Path, old: Path, wheel: InstalledWheel, ends: float
) -> WheelPatch | None:
    """Return the patch of a pair from the store, or make it; None if it would not be worth it."""
    about = folder / f"{old.parent.name}.{wheel.sha256}.json"
    path = about.with_suffix(".zst")
    found = _read(about)
    if found is None or (found and not _is_whole(path, found["sha256"])):
        folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as part:
            try:
                found = _make(zstd, Path(part), old, wheel, ends)
            except TimeoutError:
                if time.monotonic() - began > _SECONDS / 2:  # else each run would wait so long
                    replace_file(str(about), b"{}")
                raise
            if found:
                Path(part, "patch").replace(path)
        replace_file(str(about), json.dumps(found).encode())
    if not found:
        return None
    for file in (about, path):
        with suppress(OSError):  # of a read-only disk
            file.touch()
    return WheelPatch(
        path=str(path),
        file=f"{wheel.file}.zst",
        size=path.stat().st_size,
        source=old.parent.name,
        wheel=wheel.sha256,
        **found,
    )


def _read(about: Path) -> dict[str, Any] | None:
    """Return what a node needs to know about a patch, {} if it is not worth it, None if unknown."""
    with suppress(OSError, ValueError):
        found = json.loads(about.read_text("utf-8"))
        if isinstance(found, dict) and found.keys() in (set(), {"bytes", "sha256", "zlib"}):
            return found
    return None


def _is_whole(path: Path, sha256: str) -> bool:
    try:
        return sha256_of(path) == sha256
    except OSError:
        return False


def _make(zstd: str, part: Path, old: Path, wheel: InstalledWheel, ends: float) -> dict[str, Any]:
    """Make a patch in this folder; return what a node needs to know, {} if it is not worth it."""
    unpacked = max(installed_size(str(path)) for path in (old, wheel.path))
    if unpacked > _LARGEST:
        return {}
    if shutil.disk_usage(part).free < 3 * unpacked:
        raise OSError(f"that takes {3 * unpacked / 1e6:.0f} MB of disk at {part.parent}")
    if sha256_of(old) != old.parent.name or sha256_of(Path(wheel.path)) != wheel.sha256:
        raise OSError("a wheel in the store is damaged (fleetbuild store check)")
    said = _run([*_program(), str(old), wheel.path, str(part), str(_LARGEST)], ends)
    patch = part / "patch"
    options = ["-q", "-9", "--long=31", f"--patch-from={part}/old", f"{part}/new", "-o", str(patch)]
    _run([zstd, *options], ends)
    if patch.stat().st_size > _WORTH * Path(wheel.path).stat().st_size:
        return {}
    return {**json.loads(said), "sha256": sha256_of(patch)}


def _run(command: list[str], ends: float) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ZSTD_")}
    try:
        ran = run_program(command, within=ends - time.monotonic(), env=env)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"all patches together take more than {_SECONDS} s") from None
    if ran.returncode:
        raise OSError(ran.stderr or f"{Path(command[0]).name} ended with code {ran.returncode}")
    return ran.stdout


def _remove_unused(folder: Path) -> None:
    """Remove the patches that no run has used for long, and the oldest if they are too large.

    The run that calls this holds the lock, so that an unfinished patch is of a killed run.
    """
    remove_old(folder.glob(".part-*"), days=0)
    remove_old(folder.glob("*"), _DAYS)
    left = sorted(folder.glob("*.zst"), key=lambda path: path.stat().st_mtime)
    size = sum(path.stat().st_size for path in left)
    while left and size > _KEPT:
        size -= left[0].stat().st_size
        left.pop(0).unlink()
