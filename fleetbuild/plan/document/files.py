"""Read and write plan files; the configuration that a plan stands for."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

from fleetbuild.errors import Interrupted, PlanFileError
from fleetbuild.extension import extensions
from fleetbuild.files import raise_if_full, read_input, write_atomically
from fleetbuild.foreign_settings import user_name
from fleetbuild.models import Config, Install, Plan
from fleetbuild.plan.document.serialize import dump_plan, with_digest
from fleetbuild.plan.document.serialize import read_plan as plan_of_text
from fleetbuild.state import StateDir, write_if_changed

_LARGEST = 256 << 20  # bytes; a hundred thousand nodes need less


def read_plan(path: Path | str) -> Plan:
    """Return the plan in a file; refuse a file that is not a plan or was edited."""
    try:
        text = read_input(path, _LARGEST, partial(_refuse_foreign, path)).decode()
    except FileNotFoundError:
        raise PlanFileError(
            f"The plan {path} does not exist.", "Make one with: fleetbuild plan INVENTORY"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise PlanFileError(
            f"The plan {path} cannot be read: {why}", "Make a new one: fleetbuild plan INVENTORY"
        ) from None
    return plan_of_text(text, str(path))


def _refuse_foreign(path: Path | str, found: os.stat_result) -> None:
    """Raise if another user owns a plan or can write it: its hooks run as this user."""
    if found.st_uid not in (0, os.geteuid()):
        problem = f"belongs to {user_name(found.st_uid)}"
        fix = "Make your own: fleetbuild plan INVENTORY"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = "can be written by other users"
        fix = f"See that it is still yours, then: chmod go-w {path}; or plan again."
    else:
        return
    raise PlanFileError(f"The plan {path} {problem}, and applying it runs commands as you.", fix)


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write a plan atomically."""
    try:
        write_atomically(Path(path), dump_plan(plan), mode=0o644)
    except OSError as error:
        raise_if_full(error)
        raise PlanFileError(
            f"The plan cannot be saved as {path}: {error.strerror}", "Name another file."
        ) from None


def last_plan(state: StateDir) -> Plan | None:
    """Return the plan in the state directory, if there is one."""
    return read_plan(state.plan_file) if state.plan_file.exists() else None


def changed_inputs(plan: Plan, source: Path | None, config: Config, folder: Path) -> list[Path]:
    """Return the files that this plan was made from and that were written since.

    `source` is the file of `config`, whose paths start in `folder`.
    """
    named, lock = plan.options, (config.lock,) if config.lock else ()
    groups = ("pyproject.toml",) if config.groups or named.get("group") else ()
    listed = (*config.requirements, *config.constraints, *lock, *groups)
    given = (
        each for option in ("requirement", "constraint", "lock") for each in named.get(option, ())
    )
    recipes = sorted((folder / "recipes").glob("**/*.*"))
    paths = (source, *(folder / each for each in listed), *recipes, *map(Path, given))
    made = datetime.fromisoformat(plan.created).timestamp()  # in whole seconds
    there = (path for path in dict.fromkeys(paths) if path and path.exists())
    return [path for path in there if int(path.stat().st_mtime) > made]


@contextmanager
def keep_applied(plan: Plan, state: StateDir) -> Iterator[None]:
    """Save the plan as the last plan once its apply has ended or was interrupted.

    Nodes may serve its release then, so that `status` and `rollback` must know it, and another plan
    that was saved there is stale. A refused plan is not saved.
    """
    # A plan of an older version gets the defaults of newer fields, so its digest is another one.
    text = dump_plan(with_digest(plan))
    try:
        yield
    except Interrupted:
        write_if_changed(state.plan_file, text)
        raise
    write_if_changed(state.plan_file, text)


def config_of(plan: Plan, config: Config) -> Config:
    """Return the settings of a plan that say where its release is, and the sections of extensions.

    `config` is the configuration as it is now.
    """
    planned = Config(release=plan.release, install=Install(path=plan.install_path))
    for extension in extensions():
        for key, section in extension.installed_sections(plan, config).items():
            planned = planned.with_section(key, section)
    return planned
