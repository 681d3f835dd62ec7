"""What Ansible's events say of hosts that are silent, and the settings of its connections."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.ansible import HostRun, TaskEvent, connections, silent_nodes
from fleetbuild.ansible import playbooks as edge


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(edge.time, "monotonic", lambda: now[0])
    return now


def event(kind: str, host: str = "a", task: str = "install_wheel : Make the release") -> dict:
    return {"event": kind, "event_data": {"host": host, "task": task, "res": {"msg": "gone"}}}


def test_a_silent_host_is_reported_at_growing_intervals_until_it_answers(
    clock: list[float],
) -> None:
    told: list[TaskEvent] = []
    run = edge._EventCollector(told.append, silence=60)
    run.take(event("runner_on_start"))
    seconds = []
    for _ in range(150):
        clock[0] += 1
        run.tell_waiting()
        seconds += [each.result["seconds"] for each in told]
        told.clear()
    assert seconds == [30, 60, 120]
    run.take(event("runner_item_on_ok"))  # it is still at it
    clock[0] += 29
    run.tell_waiting()
    assert not told
    clock[0] += 1
    run.tell_waiting()
    assert [(each.host, each.state) for each in told] == [("a", "waiting")]
    run.take(event("runner_on_ok"))
    told.clear()
    clock[0] += 500
    run.tell_waiting()
    assert not told


def test_a_lost_host_is_reported_with_its_step_and_silence(clock: list[float]) -> None:
    told: list[TaskEvent] = []
    run = edge._EventCollector(told.append, silence=60, log="1.log")
    run.take(event("runner_on_start"))
    clock[0] += 61
    run.take(event("runner_on_unreachable"))
    lost = run.hosts(["a"])["a"]
    assert told[-1].ended == lost
    assert lost.log == "1.log"
    assert (lost.state, lost.silent) == ("unreachable", 61)
    assert lost.task.endswith("Make the release")


def test_a_host_whose_playbook_is_killed_during_a_step_has_failed() -> None:
    run = edge._EventCollector(lambda _: None, log="1.log")
    for host in "ab":
        run.take({"event": "runner_on_start", "event_data": {"host": host, "task": "Copy wheels"}})
    run.take({"event": "runner_on_ok", "event_data": {"host": "b", "task": "Copy wheels"}})
    ends = run.hosts(["a", "b"])
    assert ends["a"].state == "failed"
    assert ends["a"].message.startswith("Copy wheels: ansible-playbook ended during this step")
    assert ends["b"].state == "ok"


@pytest.mark.parametrize(
    ("state", "message", "result", "fix"),
    [
        ("unreachable", "Connection refused", "unreachable", "Once it answers"),
        ("unreachable", "Failed to create temporary directory.", "install_failed", "a home"),
        ("unreachable", "mkdir: No space left on device", "install_failed", "Free space"),
        ("failed", "Premature end of stream waiting for become success", "install_failed", "Root"),
        ("failed", "sudo: not found", "install_failed", "install.path"),
        ("failed", "odd", "install_failed", "Fix the error above"),
    ],
)
def test_what_ansible_says_decides_what_to_do(
    state: Any, message: str, result: str, fix: str
) -> None:
    failed = silent_nodes.result_without_reply(
        "a", "g", HostRun(state=state, message=message), None
    )
    assert failed.state == result
    assert message.rstrip(".") in (failed.reason or "")
    assert fix in (failed.fix or "")


def test_a_host_lost_in_a_loop_was_silent_since_its_last_item(clock: list[float]) -> None:
    run = edge._EventCollector(lambda _: None, silence=60)
    run.take(event("runner_on_start"))
    clock[0] += 10
    run.take(event("runner_item_on_ok"))
    clock[0] += 61
    run.take(event("runner_item_on_failed"))
    run.take(event("runner_on_unreachable"))
    lost = run.hosts(["a"])["a"]
    assert (lost.silent, lost.message) == (61, "gone")


@pytest.mark.parametrize("kinds", [["item_on_failed", "on_unreachable"], ["on_unreachable"]])
def test_a_transfer_that_stalled_says_itself_for_how_long(
    clock: list[float], kinds: list[str]
) -> None:
    run = edge._EventCollector(lambda _: None, silence=60)
    run.take(event("runner_on_start"))
    clock[0] += 7200  # for most of which files moved
    for kind in kinds:
        stalled = event(f"runner_{kind}")
        stalled["event_data"]["res"] = {"msg": "nothing moved for 300 s", "stalled": True}
        run.take(stalled)
    lost = run.hosts(["a"])["a"]
    assert (lost.silent, lost.message) == (0, "nothing moved for 300 s")


def test_a_failed_loop_says_why_its_first_failed_item_failed() -> None:
    told: list[TaskEvent] = []
    run = edge._EventCollector(told.append)
    run.take(event("runner_on_start"))
    run.take(event("runner_item_on_ok"))
    for kind, said in (
        ("runner_item_on_failed", "No space left on device"),
        ("runner_item_on_failed", "a later failure"),
        ("runner_item_on_ok", ""),
        ("runner_on_failed", "One or more items failed"),
    ):
        each = event(kind)
        each["event_data"]["res"]["msg"] = said
        run.take(each)
    assert told[-1].message == "No space left on device"
    assert run.hosts(["a"])["a"].message.endswith(": No space left on device")
    run.take(event("runner_on_start", task="another"))
    run.take(event("runner_on_failed", task="another"))
    assert told[-1].message == "gone"
    assert told[-1].ended == run.hosts(["a"])["a"]
    ignored = event("runner_on_failed")
    ignored["event_data"]["ignore_errors"] = True
    run.take(ignored)
    assert told[-1].ended is None


def test_a_step_that_took_too_long_is_named() -> None:
    data = {"task": "install_wheel : Copy wheels", "res": {"timedout": {"period": 900}}}
    told = edge.task_event("runner_on_failed", data)
    assert told.message == "The step 'Copy wheels' did not end within 900 s."


def test_keepalives_do_not_override_the_users_options(tmp_path: Path) -> None:
    mine = "-o ServerAliveInterval=5"
    env = connections.connections({"ssh.ssh_extra_args": mine}, 60, tmp_path)
    assert env["ANSIBLE_SSH_EXTRA_ARGS"].startswith(f"{mine} -o ServerAliveInterval=15 ")
    assert env["ANSIBLE_SFTP_EXTRA_ARGS"] == "-o ServerAliveInterval=15 -o ServerAliveCountMax=3"
    assert not {"ANSIBLE_SSH_ARGS", "ANSIBLE_SSH_COMMON_ARGS"} & env.keys()
    assert env["ANSIBLE_SSH_CONTROL_PATH_DIR"] == str(tmp_path / "cp")
    assert env["ANSIBLE_TIMEOUT"] == "30"
    own = {"ssh.control_path_dir": "~/mine", "DEFAULT_TIMEOUT": 5}
    own = connections.connections(own, 60, tmp_path)
    assert "ANSIBLE_TIMEOUT" not in own
    assert "ANSIBLE_SSH_CONTROL_PATH_DIR" not in own


def test_only_the_runs_own_processes_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    title = [f"ssh: {tmp_path}/cp/1234567890 [mux]", "-c", "import time; time.sleep(60)"]
    with (
        subprocess.Popen(sleep) as other,
        subprocess.Popen(sleep, env={"FLEETBUILD_RUN": str(tmp_path)}) as marked,
        subprocess.Popen(title, executable=sys.executable) as shared,
    ):
        try:
            for process in (marked, shared):  # Linux shows both only some time after the start
                for name in ("cmdline", "environ"):
                    while not Path(f"/proc/{process.pid}/{name}").read_bytes():
                        time.sleep(0.01)
            connections.signal_run(tmp_path, signal.SIGTERM)
            assert marked.wait(10) == shared.wait(10) == -signal.SIGTERM
            assert other.poll() is None
        finally:
            for process in (other, marked, shared):
                process.kill()
