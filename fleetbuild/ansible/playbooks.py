"""Our playbooks, run with the user's inventory; their events become ours here."""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleetbuild.ansible._runner import private_dir, stream
from fleetbuild.ansible.alive import end_connections, keepalive, signal_run
from fleetbuild.ansible.messages import plain, sentence, unreachable_reason
from fleetbuild.ansible.secrets import Secrets, vault_arguments, write_private
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.errors import FleetbuildError

_LONGEST = 2000
_GRACE = 5.0  # seconds for Ansible to stop its workers by itself
SILENCE = 60.0  # seconds without an answer after which a node is given up


@dataclass(frozen=True)
class TaskEvent:
    """A task that ended on a host; as `retry`, was not yet what it waits for; or, as `waiting`,
    has not said anything for `result["seconds"]`."""

    host: str
    task: str
    state: Literal["ok", "changed", "failed", "unreachable", "skipped", "retry", "waiting"]
    result: dict[str, Any]
    message: str = ""


@dataclass(frozen=True)
class HostRun:
    """How a playbook ended for one host."""

    state: Literal["ok", "failed", "unreachable"]
    message: str = ""
    task: str = ""  # at which it was lost
    silent: float = 0  # seconds that it had said nothing then


_STATES: dict[str, Literal["ok", "failed", "unreachable", "skipped", "retry"]] = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_retry": "retry",
}


# What shows that a host is at a task, or still at it.
_UNDER_WAY = {
    "runner_on_start",
    "runner_retry",
    "runner_item_on_ok",
    "runner_item_on_skipped",
}


@dataclass
class _Awaited:
    """A host that is at a task: since when it has said nothing, and for how long that was told."""

    task: str
    since: float
    told: float = 0
    said: str = ""  # why an item of its loop failed


def run_playbook(
    name: str,
    *,
    inventory: str,
    limit: Sequence[str],
    extravars: Mapping[str, Any],
    secrets: Secrets | None = None,
    state_dir: Path,
    on_event: Callable[[TaskEvent], None],
    forks: int = 25,
    interpreters: Mapping[str, str] | None = None,
    silence: float = SILENCE,
    stopping: Callable[[], bool] = lambda: False,
) -> dict[str, HostRun]:
    """Run playbooks/NAME on some hosts of an inventory. What it printed stays in state_dir/runs.

    `interpreters` tells what runs Ansible's modules on hosts of which the user's files do not say.
    A host that does not answer for `silence` seconds is unreachable. Ctrl-C stops Ansible and its
    workers, and so does `stopping`, for a run in another thread than the main one.
    """
    run = _Run(on_event, silence)
    secrets, settings = secrets or Secrets(), effective_settings()
    known = interpreters if interpreters and "INTERPRETER_PYTHON" not in settings else {}
    with private_dir() as private:
        stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{Path(name).stem}"
        log = state_dir / "runs" / f"{stamp}-{private.name[-4:]}.log"
        arguments = [
            *("-i", inventory, "--forks", str(forks)),
            *_modules_under(known, private),
            *_whom_and_what(limit, extravars, private),
            *_asking(secrets),
            *vault_arguments(secrets, private),
            str(_laid_out(private) / name),
        ]
        code = _interruptible(
            lambda cancelled: stream(
                "ansible-playbook",
                arguments,
                private=private,
                env={**_environment(settings), **keepalive(settings, silence, private)},
                passwords=_answers(secrets),
                on_event=run.take,
                cancelled=cancelled,
                log=log,
            ),
            private,
            run.tell_waiting,
            stopping,
        )
    if code != 0 and not run.played:
        raise FleetbuildError(
            f"ansible-playbook stopped before its first task: {run.complaint()}",
            f"its whole output is in {log}",
        )
    return run.hosts(limit)


def ansible_dir() -> Path:
    """Where the collection lies: in the installed package, or around it in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "_ansible"
    return installed if installed.is_dir() else package.parent


def _laid_out(private: Path) -> Path:
    """A folder with our playbooks, and our collection beside them.

    Ansible looks for collections beside a playbook first. So a run uses the modules and roles of
    this fleetbuild, not those of another version that is installed, and `collections_path` of the
    user's configuration keeps its meaning.
    """
    collection, folder = ansible_dir(), private / "playbooks"
    link = folder / "collections" / "ansible_collections" / "fleetbuild" / "core"
    link.parent.mkdir(parents=True)
    link.symlink_to(collection)
    if not (collection / "playbooks").is_dir():
        raise FleetbuildError(f"{collection}/playbooks is missing", "install fleetbuild again")
    for entry in (collection / "playbooks").iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


def _whom_and_what(
    limit: Sequence[str], extravars: Mapping[str, Any], private: Path
) -> tuple[str, ...]:
    """Hosts and values through files: neither belongs on a command line."""
    hosts = write_private(private / "limit", "\n".join(limit))
    values = write_private(private / "extravars.json", json.dumps(extravars))
    return "--limit", f"@{hosts}", "-e", f"@{values}"


def _modules_under(interpreters: Mapping[str, str], private: Path) -> tuple[str, ...]:
    """A second inventory, which adds one variable to hosts of the first."""
    if not interpreters:
        return ()
    hosts = {host: {"ansible_python_interpreter": path} for host, path in interpreters.items()}
    return "-i", str(write_private(private / "hosts.json", json.dumps({"all": {"hosts": hosts}})))


def _asking(secrets: Secrets) -> list[str]:
    options = {"--ask-pass": secrets.ask_pass, "--ask-become-pass": secrets.become_pass}
    return [option for option, password in options.items() if password]


def _answers(secrets: Secrets) -> dict[str, str]:
    """What Ansible asks at its terminal, and what is said there."""
    answers = {}
    if secrets.ask_pass:
        answers[r"SSH password:\s*$"] = secrets.ask_pass
    if secrets.become_pass:
        answers[r"BECOME password[^\n]*:\s*$"] = secrets.become_pass
    return answers


def _environment(settings: Settings) -> dict[str, str]:
    """Better defaults where the user's configuration has none."""
    # The second lock behind playbooks/action_plugins.
    env = {"ANSIBLE_INJECT_FACT_VARS": "False"}
    if "ssh.pipelining" not in settings and "ANSIBLE_PIPELINING" not in settings:
        env["ANSIBLE_PIPELINING"] = "True"
    if "ssh.password_mechanism" not in settings and shutil.which("sshpass"):
        # A pipe. What ansible-core 2.19 does by itself leaves the password in /dev/shm if killed.
        env["ANSIBLE_SSH_PASSWORD_MECHANISM"] = "sshpass"  # noqa: S105 (a way, no password)
    if "INTERPRETER_PYTHON" not in settings:
        env["ANSIBLE_PYTHON_INTERPRETER"] = "auto_silent"
    return env


class _Run:
    """What a playbook's events add up to."""

    def __init__(self, on_event: Callable[[TaskEvent], None], silence: float = SILENCE) -> None:
        self.played = False
        self._on_event = on_event
        self._silence = silence
        self._lock = threading.Lock()  # events come from one thread, the time from another
        self._awaited: dict[str, _Awaited] = {}
        self._ended: dict[str, HostRun] = {}
        self._reached: set[str] = set()
        self._said: list[str] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of ansible-runner."""
        with self._lock:
            self._take(str(event.get("event")), event.get("event_data") or {}, event)

    def tell_waiting(self) -> None:
        """Tell which hosts have said nothing for half the time that they have, and then for twice
        as long again and again."""
        with self._lock:
            for host, awaited in self._awaited.items():
                seconds = time.monotonic() - awaited.since
                if seconds >= (awaited.told * 2 or self._silence / 2):
                    awaited.told = seconds
                    told = {"seconds": round(seconds)}
                    self._on_event(TaskEvent(host, awaited.task, "waiting", told))

    def _take(self, kind: str, data: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        host = str(data.get("host", ""))
        if kind == "runner_item_on_failed" and host in self._awaited:
            # Where the connection was lost this is the loss itself, and no sign of life.
            self._awaited[host].said = task_event("runner_on_failed", data).message
            return
        awaited = self._awaited.pop(host, None)
        if kind in _UNDER_WAY:
            task = str(data.get("task") or (awaited.task if awaited else ""))
            self._awaited[host] = _Awaited(task, time.monotonic())
        if kind not in _STATES:
            self._said = [*self._said[-50:], str(event.get("stdout", ""))]
            return
        self.played = True
        told = task_event(kind, data)
        if told.state in {"ok", "changed"}:
            self._reached.add(told.host)
        elif told.state == "unreachable":
            silent = time.monotonic() - awaited.since if awaited else 0
            why = (awaited.said if awaited else "") or unreachable_reason(told.message)
            self._ended[told.host] = HostRun("unreachable", why, told.task, silent)
        elif told.state == "failed" and not data.get("ignore_errors"):
            self._ended[told.host] = HostRun("failed", f"{told.task}: {told.message}")
        self._on_event(told)

    def hosts(self, limit: Iterable[str]) -> dict[str, HostRun]:
        """How it ended for each host, the untouched ones among them."""
        silent = HostRun("failed", f"Ansible did not come to it. {self.complaint()}".strip())
        return {
            host: self._ended.get(host) or (HostRun("ok") if host in self._reached else silent)
            for host in limit
        }

    def complaint(self) -> str:
        """The error among what Ansible printed outside of tasks."""
        lines = plain("\n".join(self._said)).splitlines()
        errors = [line for line in lines if "ERROR" in line]
        return sentence("\n".join(errors)) if errors else ""


def task_event(kind: str, data: Mapping[str, Any]) -> TaskEvent:
    """One of ansible-runner's events about a task, as ours."""
    result = data.get("res")
    result = result if isinstance(result, dict) else {}
    state = _STATES[kind]
    return TaskEvent(
        host=str(data.get("host", "")),
        task=str(data.get("task", "")),
        state="changed" if state == "ok" and result.get("changed") is True else state,
        result=result,
        message=_message(data, result) if state in ("failed", "unreachable") else "",
    )


def _message(data: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """Why a task failed: its message, and the end of what the command said."""
    if (late := result.get("timedout")) and isinstance(late, Mapping):
        step = str(data.get("task")).rpartition(" : ")[2]
        return f"The step {step!r} did not end within {late.get('period')} s."
    reasons = (result.get(name) for name in ("msg", "reason", "exception", "censored"))
    said = str(next(filter(None, reasons), ""))
    if re.fullmatch(r"non-zero return code|MODULE FAILURE.*|", said.strip(), re.DOTALL):
        output = result.get("stderr") or result.get("module_stderr") or result.get("stdout") or ""
        said = f"{said.partition(chr(10))[0]}: {str(output).strip()[-_LONGEST:]}"
    return plain(said).strip(" :\n")[-_LONGEST:]


def _interruptible(
    work: Callable[[Callable[[], bool]], int],
    private: Path,
    tick: Callable[[], None],
    stopping: Callable[[], bool],
) -> int:
    """Do the work in a thread that Ctrl-C here ends. No process of it is left afterwards."""
    give_up, codes, problems = threading.Event(), [], []

    def job() -> None:
        try:
            codes.append(work(give_up.is_set))
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=job, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.1)
            tick()
            if stopping():
                raise KeyboardInterrupt
    except BaseException:
        _stop(thread, give_up, private)
        raise
    finally:
        end_connections(private)
    if problems:
        raise problems[0]
    return codes[0]


def _stop(thread: threading.Thread, give_up: threading.Event, private: Path) -> None:
    """Ask Ansible to stop as Ctrl-C does; then have the rest killed, its detached workers too."""
    signal_run(private, signal.SIGINT, children_only=True)
    thread.join(_GRACE)
    give_up.set()
    thread.join(_GRACE)
    signal_run(private, signal.SIGKILL)
