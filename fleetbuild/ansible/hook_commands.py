"""Run the command of a hook on the controller, once for each node.

In: a `HookCall`. Out: the nodes for which it failed, with the end of its output. A command gets its
node in environment variables, so that no name becomes part of the shell's text.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fleetbuild.ansible._runner import private_dir
from fleetbuild.ansible.connections import signal_run
from fleetbuild.ansible.messages import plain
from fleetbuild.ansible.playbooks import new_log
from fleetbuild.models.hooks import HookCall, HookFailure

_AT_ONCE = 10
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_LONGEST = 500  # characters of its output in a message


def run_commands(
    call: HookCall, logs: Path, stopping: Callable[[], bool]
) -> dict[str, HookFailure]:
    """Return the failures by node. Ctrl-C, or `stopping` in other threads, ends the commands."""
    ended = threading.Event()
    run = partial(_run, call, logs, lambda: ended.is_set() or stopping())
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fleetbuild-hook") as pool:
        try:
            failures = dict(zip(call.nodes, pool.map(run, call.nodes), strict=True))
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {node: failure for node, failure in failures.items() if failure}


def _run(call: HookCall, logs: Path, stopping: Callable[[], bool], node: str) -> HookFailure | None:
    log = new_log(logs, f"{call.name}-{call.group}")
    with private_dir() as private, log.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-c", str(call.hook.command)],
            env={**os.environ, **_variables(call, node), "FLEETBUILD_RUN": str(private)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches it through fleetbuild alone
        )
        try:
            code = _wait(process, call.hook.timeout, stopping)
        finally:
            _end(process, private)
    if code == 0:
        log.unlink()
        return None
    last = _last_line(log)
    reason = call.too_late if code is None else f"exit code {code}"
    return HookFailure(
        reason=f"{reason}{': ' if last else ''}{last}".rstrip(".") + ".", log=str(log)
    )


def _variables(call: HookCall, node: str) -> dict[str, str]:
    return {
        "FLEETBUILD_HOOK": call.name,
        "FLEETBUILD_NODE": node,
        "FLEETBUILD_KUBERNETES_NODE": call.nodes[node],
        "FLEETBUILD_GROUP": call.group,
        "FLEETBUILD_RELEASE": call.release,
        "FLEETBUILD_RELEASE_ID": call.release_id,
    }


def _wait(
    process: subprocess.Popen[bytes], seconds: float, stopping: Callable[[], bool]
) -> int | None:
    """Return the exit code; None if it did not end in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            return process.wait(0.1)
        except subprocess.TimeoutExpired:
            if stopping():
                raise KeyboardInterrupt from None
    return None


def _end(process: subprocess.Popen[bytes], private: Path) -> None:
    """End a command that still runs, with its children."""
    if process.poll() is None:
        signal_run(private, signal.SIGTERM)
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            signal_run(private, signal.SIGKILL)
            process.wait()


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - (1 << 14)))
        lines = plain(file.read().decode("utf-8", "replace")).strip().splitlines()
    return lines[-1].strip()[:_LONGEST] if lines else ""
