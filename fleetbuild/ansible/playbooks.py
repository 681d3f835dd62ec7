"""Our playbooks, run with the user's inventory; their events become ours here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fleetbuild.ansible._runner import private_dir, stream
from fleetbuild.ansible.messages import plain, sentence
from fleetbuild.ansible.secrets import Secrets, vault_arguments, write_private
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.errors import FleetbuildError

_LONGEST = 2000
_GRACE = 5.0  # seconds for Ansible to stop its workers by itself


@dataclass(frozen=True)
class TaskEvent:
    """A task that ended on a host, or, as `retry`, was not yet what it waits for."""

    host: str
    task: str
    state: Literal["ok", "changed", "failed", "unreachable", "skipped", "retry"]
    result: dict[str, Any]
    message: str = ""


@dataclass(frozen=True)
class HostRun:
    """How a playbook ended for one host."""

    state: Literal["ok", "failed", "unreachable"]
    message: str = ""


_STATES: dict[str, Literal["ok", "failed", "unreachable", "skipped", "retry"]] = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_retry": "retry",
}


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
) -> dict[str, HostRun]:
    """Run playbooks/NAME on some hosts of an inventory. What it printed stays in state_dir/runs.

    `interpreters` tells what runs Ansible's modules on hosts of which the user's files do not say.
    Ctrl-C stops Ansible and its workers.
    """
    run = _Run(on_event)
    log = state_dir / "runs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{Path(name).stem}.log"
    secrets, settings = secrets or Secrets(), effective_settings()
    known = interpreters if interpreters and "INTERPRETER_PYTHON" not in settings else {}
    with private_dir() as private:
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
                env=_environment(settings),
                passwords=_answers(secrets),
                on_event=run.take,
                cancelled=cancelled,
                log=log,
            ),
            private,
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
    env = {}
    if "ssh.pipelining" not in settings and "ANSIBLE_PIPELINING" not in settings:
        env["ANSIBLE_PIPELINING"] = "True"
    if "INTERPRETER_PYTHON" not in settings:
        env["ANSIBLE_PYTHON_INTERPRETER"] = "auto_silent"
    return env


class _Run:
    """What a playbook's events add up to."""

    def __init__(self, on_event: Callable[[TaskEvent], None]) -> None:
        self.played = False
        self._on_event = on_event
        self._ended: dict[str, HostRun] = {}
        self._reached: set[str] = set()
        self._said: list[str] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """One event of ansible-runner."""
        kind, data = str(event.get("event")), event.get("event_data") or {}
        if kind not in _STATES:
            self._said = [*self._said[-50:], str(event.get("stdout", ""))]
            return
        self.played = True
        told = task_event(kind, data)
        if told.state in {"ok", "changed"}:
            self._reached.add(told.host)
        elif told.state == "unreachable":
            self._ended[told.host] = HostRun("unreachable", told.message)
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
        message=_message(result) if state in ("failed", "unreachable") else "",
    )


def _message(result: Mapping[str, Any]) -> str:
    """Why a task failed: its message, and the end of what the command said."""
    reasons = (result.get(name) for name in ("msg", "reason", "exception", "censored"))
    said = str(next(filter(None, reasons), ""))
    if re.fullmatch(r"non-zero return code|MODULE FAILURE.*|", said.strip(), re.DOTALL):
        output = result.get("stderr") or result.get("module_stderr") or result.get("stdout") or ""
        said = f"{said.partition(chr(10))[0]}: {str(output).strip()[-_LONGEST:]}"
    return plain(said).strip(" :\n")[-_LONGEST:]


def _interruptible(work: Callable[[Callable[[], bool]], int], private: Path) -> int:
    """Do the work in a thread that Ctrl-C here ends."""
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
    except KeyboardInterrupt:
        _stop(thread, give_up, private)
        raise
    if problems:
        raise problems[0]
    return codes[0]


def _stop(thread: threading.Thread, give_up: threading.Event, private: Path) -> None:
    """Ask Ansible to stop as Ctrl-C does; then kill what is left, its detached workers too."""
    _signal(private, signal.SIGINT, children_only=True)
    thread.join(_GRACE)
    give_up.set()
    thread.join(_GRACE)
    _signal(private, signal.SIGKILL)


def _signal(private: Path, number: signal.Signals, *, children_only: bool = False) -> None:
    """Signal the processes of one run: they, and only they, carry its directory as a mark."""
    mark = f"FLEETBUILD_RUN={private}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if mark not in process.joinpath("environ").read_bytes():
                continue
            parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            if not children_only or int(parent) == os.getpid():
                os.kill(int(process.name), number)
