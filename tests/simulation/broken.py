"""The engine, broken on purpose: the simulation must find each of these."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

from fleetbuild.apply import pending, rollout, stages, wave
from fleetbuild.errors import LockedError
from fleetbuild.journal import Journal
from tests.simulation import nodes
from tests.simulation.controllers import Store

_Lease, _Root = nodes._lease.Lease, nodes._root.Root


def a_lease_is_not_checked() -> None:
    """A run that lost its lease goes on, and switches."""
    _Lease._own = lambda self, _: self._read()


def a_lease_refuses_nobody() -> None:
    """A second run changes a node while the first one does."""
    _Lease._refuse = lambda *_: None


def a_release_is_verified_without_its_checks() -> None:
    """The mark of a verified release is set whatever the checks say."""
    trying = nodes._verifying.try_release
    nodes._verifying.try_release = lambda *args: {**trying(*args), "ok": True}


def a_manifest_is_written_first() -> None:
    """The manifest, which means complete, is written before the wheels are installed."""
    install = nodes._making.install

    def early(path: str, wheels: Any, uv: str, run: Any) -> Any:
        nodes._making.seal(path, {"wheels": []})
        return install(path, wheels, uv, run)

    nodes._making.install = early


def a_switch_takes_two_steps() -> None:
    """The link to the current release is removed, and then made."""

    def point_to(self: Any, name: str) -> None:
        if os.path.lexists(self.current):
            Path(self.current).unlink()
        Path(self.current).symlink_to(f"releases/{name}")

    _Root.point_to = point_to


def the_history_follows_the_switch() -> None:
    """A full disk keeps a switch out of the history, and fails it although it is done."""

    def switch(self: Any, name: str, history: list[str]) -> None:
        self.point_to(name)
        nodes._files.write(f"{self.path}/history", "".join(f"{each}\n" for each in history))

    _Root.switch = switch


def a_damaged_release_is_removed_first() -> None:
    """A damaged release that serves is removed before it is installed again."""
    _Root.put_aside = lambda self, name: shutil.rmtree(self[name])


def all_old_releases_are_removed() -> None:
    """Not even the release that served before stays."""
    _Root.outdated = lambda self, *_: [
        path.name for path in Path(self.releases).iterdir() if path.name != self.serving()
    ]


def a_kept_wheel_is_not_checked() -> None:
    """A wheel of an earlier release is used as it lies there."""
    nodes._receiving.is_whole = lambda path, _: os.path.exists(path)  # noqa: PTH110


def kept_wheels_are_not_used() -> None:
    """A wheel that another release holds is sent again."""
    missing = nodes.release.missing

    def wheels_too(root: Any, params: dict[str, Any]) -> list[dict[str, str]]:
        wheels = params["wheels"]
        return [*wheels, *(file for file in missing(root, params) if file not in wheels)]

    nodes.release.missing = wheels_too


def kept_wheels_stay() -> None:
    """The wheels of removed releases stay."""
    nodes._in_use.forget_wheels = lambda _: None


def there_are_no_canaries() -> None:
    """All nodes go in batches from the beginning."""

    def none(_: Any, progress: Any, __: Any) -> Any:
        yield from ()
        return progress, None

    rollout._try_canaries = none


def a_batch_takes_one_more() -> None:
    """Each batch has one node more than it should have."""
    install = rollout.wave

    @wraps(install)
    def larger(run: Any, progress: Any, batches: Any) -> Any:
        return install(run, progress, [_with_one_more(batch, progress) for batch in batches])

    rollout.wave = larger


def _with_one_more(batch: Any, progress: Any) -> Any:
    taken = (*batch.names, *progress.nodes)
    more = [name for name in batch.group.nodes if name not in taken][:1]
    return batch._replace(names=[*batch.names, *more])


def failures_have_no_limit() -> None:
    """A group goes on however many of its nodes failed."""
    rollout._over_limit = lambda *_: None  # type: ignore[assignment]


def labels_stay_during_a_change() -> None:
    """Pods are sent to a node while its release is replaced."""
    wave.notify_before = lambda _, progress, __: progress


def a_failure_counts_as_installed() -> None:
    """A node on which a task failed is reported as installed."""
    wave.result_without_reply = lambda name, group, *_: pending.NodeResult(
        node=name, group=group, state="installed"
    )


def a_node_that_serves_it_gets_it_again() -> None:
    """An apply installs on nodes that are up to date."""
    pending.is_serving = lambda *_: False


def a_stored_wheel_is_built_again() -> None:
    """An apply does not look into the store."""
    Store.find = lambda *_: None  # type: ignore[assignment,method-assign]


def nobody_cleans_up() -> None:
    """The lease and the wheels of a run that was killed stay."""
    rollout.clean_up = lambda *_: None


def a_drained_node_is_forgotten() -> None:
    """The next run does not run rollout.after for nodes that were left drained."""
    Journal.left_drained = lambda _: []  # type: ignore[method-assign]


def two_runs_share_a_state_directory() -> None:
    """The run lock holds nobody up."""
    hold = stages.hold_run_lock

    @contextmanager
    def nobody(path: Path) -> Iterator[None]:
        try:
            with hold(path):
                yield
        except LockedError:
            yield

    stages.hold_run_lock = nobody


BROKEN: dict[str, Callable[[], None]] = {
    work.__name__: work
    for work in (
        a_lease_is_not_checked, a_lease_refuses_nobody, a_release_is_verified_without_its_checks,
        a_manifest_is_written_first, a_switch_takes_two_steps, the_history_follows_the_switch,
        a_damaged_release_is_removed_first, all_old_releases_are_removed,
        a_kept_wheel_is_not_checked, kept_wheels_are_not_used, kept_wheels_stay,
        there_are_no_canaries, a_batch_takes_one_more, failures_have_no_limit,
        labels_stay_during_a_change, a_failure_counts_as_installed,
        a_node_that_serves_it_gets_it_again, a_stored_wheel_is_built_again, nobody_cleans_up,
        a_drained_node_is_forgotten, two_runs_share_a_state_directory,
    )
}  # fmt: skip
