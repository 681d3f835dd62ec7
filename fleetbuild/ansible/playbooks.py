"""Run fleetbuild's playbooks with the user's inventory, and convert Ansible's events.

In: a playbook's name, hosts, variables, which are never evaluated as templates, and secrets. Out:
events, and a `HostRun` for each host.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Protocol

from fleetbuild.ansible._runner import config_files, private_dir, stream
from fleetbuild.ansible.connections import connections
from fleetbuild.ansible.messages import plain, sentence, unreachable_reason
from fleetbuild.ansible.secrets import Secrets, vault_arguments, write_private
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.errors import FleetbuildError
from fleetbuild.files import ansible_dir
from fleetbuild.this_machine import local_hosts
from fleetbuild.workers import is_stopped

_CONFIG = Path(__file__).with_name("ansible.cfg")
_LONGEST = 2000
SILENCE = 60.0  # seconds without an answer after which a node counts as unreachable


@dataclass(frozen=True)
class TaskEvent:
    """What happened to a task on a host.

    `retry`: its condition is not met yet. `waiting`: no answer for `result["seconds"]`. Every other
    state: the task ended. `ended`: how its host ended, if the task failed and no `rescue` goes on.
    """

    host: str
    task: str
    state: Literal["ok", "changed", "failed", "unreachable", "skipped", "retry", "waiting"]
    result: dict[str, Any]
    message: str = ""
    ended: HostRun | None = None


@dataclass(frozen=True)
class HostRun:
    """How a playbook ended for one host."""

    state: Literal["ok", "failed", "unreachable"]
    message: str = ""
    task: str = ""  # the task during which the host became unreachable
    silent: float = 0  # seconds without an answer at that time
    log: str = ""  # the file with what Ansible printed


_STATES: dict[str, Literal["ok", "failed", "unreachable", "skipped", "retry"]] = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
    "runner_retry": "retry",
}


# Events which show that a host works on a task.
_UNDER_WAY = {
    "runner_on_start",
    "runner_retry",
    "runner_item_on_ok",
    "runner_item_on_skipped",
}


@dataclass
class _Awaited:
    """A host that works on a task: the time of its last sign of life, and its reports."""

    task: str
    since: float
    reported: float = 0  # seconds of silence at the last `waiting` event
    item_failure: str = ""  # why an item of its loop failed


class RunPlaybook(Protocol):
    """Runs a playbook on hosts, with this share of the forks."""

    def __call__(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
        share: Fraction = Fraction(1),
    ) -> Mapping[str, HostRun]: ...


@dataclass(frozen=True, kw_only=True)
class Playbooks:
    """Playbooks on the hosts of one inventory; what they print is saved in state_dir/runs.

    `interpreters` maps hosts to the Python for Ansible's modules, if the user has not set one. A
    host that does not answer for `silence` seconds is unreachable. Ctrl-C stops Ansible and its
    workers, and so does `stopping`.
    """

    inventory: str
    state_dir: Path
    secrets: Secrets = field(default_factory=Secrets)
    forks: int = 25
    interpreters: Mapping[str, str] = field(default_factory=dict)
    silence: float = SILENCE
    stopping: Callable[[], bool] = is_stopped

    def run(
        self,
        name: str,
        *,
        limit: Sequence[str],
        extravars: Mapping[str, Any],
        on_event: Callable[[TaskEvent], None],
        share: Fraction = Fraction(1),
    ) -> dict[str, HostRun]:
        """Run playbooks/NAME, or the user's playbook at an absolute path, on these hosts."""
        if self.stopping():  # stop was requested between two playbooks of another thread
            raise KeyboardInterrupt
        log = new_log(self.state_dir / "runs", Path(name).stem)
        run, settings = _EventCollector(on_event, self.silence, str(log)), effective_settings()
        forks = max(1, int(self.forks * share))
        interpreters = {} if "INTERPRETER_PYTHON" in settings else dict(self.interpreters)
        with private_dir() as private:
            arguments = [
                *("-i", self.inventory, "--forks", str(forks)),
                *_own_inventory(interpreters, local_hosts(self.inventory), private),
                *_limit_and_variables(limit, extravars, private),
                *_prompt_options(self.secrets),
                *vault_arguments(self.secrets),
                str(_laid_out(private, name)),
            ]
            env = {
                **_environment(settings, name),
                **connections(settings, self.silence, private),
            }
            code = stream(
                "ansible-playbook",
                arguments,
                private=private,
                env=env,
                passwords=_prompt_answers(self.secrets),
                on_event=run.take,
                tick=run.tell_waiting,
                stopping=self.stopping,
                log=log,
            )
        if code != 0 and not run.played:
            raise FleetbuildError(
                f"ansible-playbook stopped before its first task: {run.complaint()}",
                f"Its whole output is in {log}",
            )
        return run.hosts(limit)


def new_log(folder: Path, name: str) -> Path:
    """Create the log of a run; runs that start in the same second are numbered."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{time.strftime('%Y%m%dT%H%M%S')}-{name}"
    log, number = folder / f"{stem}.log", 1
    while True:
        try:
            log.touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            number += 1
            log = folder / f"{stem}-{number}.log"
        else:
            return log


def _laid_out(private: Path, name: str) -> Path:
    """Make a folder with our playbooks and our collection beside them; return this playbook.

    Ansible looks for collections beside a playbook first. So a run uses the modules and roles of
    this fleetbuild, even if another version is installed, and `collections_path` of the
    user's configuration keeps its meaning.
    """
    if Path(name).is_absolute():  # the user's
        return Path(name)
    collection, folder = ansible_dir(), private / "playbooks"
    link = folder / "collections" / "ansible_collections" / "fleetbuild" / "core"
    link.parent.mkdir(parents=True)
    link.symlink_to(collection)
    if not (collection / "playbooks" / name).is_file():
        problem = f"{collection}/playbooks/{name} is missing"
        raise FleetbuildError(problem, "Install fleetbuild again.")
    for entry in (collection / "playbooks").iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder / name


def _limit_and_variables(
    limit: Sequence[str], extravars: Mapping[str, Any], private: Path
) -> tuple[str, ...]:
    """Return arguments that pass hosts and variables in files, since argv is public."""
    hosts = write_private(private / "limit", "\n".join(limit))
    values = write_private(private / "extravars.json", json.dumps(as_literal(extravars)))
    return "--limit", f"@{hosts}", "-e", f"@{values}"


def as_literal(value: Any) -> Any:
    """Mark every text in a value as unsafe, so that Ansible does not evaluate it as a template.

    Some texts come from nodes, and a template would run code on the controller.
    """
    if isinstance(value, str):
        return {"__ansible_unsafe": value} if "{" in value else value
    if isinstance(value, Mapping):
        return {key: as_literal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_literal(item) for item in value]
    return value


def _own_inventory(
    interpreters: Mapping[str, str], local: Sequence[str], private: Path
) -> tuple[str, ...]:
    """Return arguments for a second inventory: each host's interpreter, and who is this machine."""
    hosts = {host: {"ansible_python_interpreter": path} for host, path in interpreters.items()}
    for host in local:
        hosts[host] = {**hosts.get(host, {}), "ansible_connection": "local"}
    if not hosts:
        return ()
    return "-i", str(write_private(private / "hosts.json", json.dumps({"all": {"hosts": hosts}})))


def _prompt_options(secrets: Secrets) -> list[str]:
    options = {"--ask-pass": secrets.ask_pass, "--ask-become-pass": secrets.become_pass}
    return [option for option, password in options.items() if password]


def _prompt_answers(secrets: Secrets) -> dict[str, str]:
    """Return the patterns of Ansible's password prompts, with the answers."""
    answers = {}
    if secrets.ask_pass:
        answers[r"SSH password:\s*$"] = secrets.ask_pass
    if secrets.become_pass:
        answers[r"BECOME password[^\n]*:\s*$"] = secrets.become_pass
    return answers


def _environment(settings: Settings, name: str) -> dict[str, str]:
    """Return defaults for settings that the user has not set."""
    env = {}
    if not config_files():
        env["ANSIBLE_CONFIG"] = str(_CONFIG)
    if not Path(name).is_absolute():  # a user's playbook may use injected facts
        env["ANSIBLE_INJECT_FACT_VARS"] = "False"  # beside the check of replies
    if "ssh.pipelining" not in settings and "ANSIBLE_PIPELINING" not in settings:
        env["ANSIBLE_PIPELINING"] = "True"
    if "ssh.ssh_args" not in settings:
        # As by default, but without -C: wheels are compressed, and ssh takes seconds for each.
        env["ANSIBLE_SSH_ARGS"] = "-o ControlMaster=auto -o ControlPersist=60s"
    if "ssh.password_mechanism" not in settings and shutil.which("sshpass"):
        # sshpass uses a pipe; the default of ansible-core 2.19 leaves the password in /dev/shm if
        # killed.
        env["ANSIBLE_SSH_PASSWORD_MECHANISM"] = "sshpass"  # noqa: S105 (a method, not a password)
    if "INTERPRETER_PYTHON" not in settings:
        env["ANSIBLE_PYTHON_INTERPRETER"] = "auto_silent"
    return env


class _EventCollector:
    """Collects a playbook's events into the outcome for each host."""

    def __init__(
        self, on_event: Callable[[TaskEvent], None], silence: float = SILENCE, log: str = ""
    ) -> None:
        self.played = False
        self._on_event, self._log = on_event, log
        self._silence = silence
        self._lock = threading.Lock()  # events and clock ticks come from different threads
        self._awaited: dict[str, _Awaited] = {}
        self._ended: dict[str, HostRun] = {}
        self._reached: set[str] = set()
        self._said: list[str] = []

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in one event of ansible-runner."""
        with self._lock:
            self._take(str(event.get("event")), event.get("event_data") or {}, event)

    def tell_waiting(self) -> None:
        """Report hosts that have been silent for half of the limit; then each time that doubles."""
        with self._lock:
            for host, awaited in self._awaited.items():
                seconds = time.monotonic() - awaited.since
                if seconds >= (awaited.reported * 2 or self._silence / 2):
                    awaited.reported = seconds
                    result = {"seconds": round(seconds)}
                    self._on_event(TaskEvent(host, awaited.task, "waiting", result))

    def _take(self, kind: str, data: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        host = str(data.get("host", ""))
        self._take_stall(host, data.get("res"))
        if kind == "runner_item_on_failed" and host in self._awaited:
            # If the connection was lost, this event is the loss and not a sign of life.
            self._awaited[host].item_failure = (
                self._awaited[host].item_failure or task_event("runner_on_failed", data).message
            )
            return
        awaited = self._awaited.pop(host, None)
        if kind in _UNDER_WAY:
            task = str(data.get("task") or (awaited.task if awaited else ""))
            failure = awaited.item_failure if awaited and awaited.task == task else ""
            self._awaited[host] = _Awaited(task, time.monotonic(), item_failure=failure)
        if kind == "playbook_on_stats":
            self._take_stats(data)
        if kind not in _STATES:
            self._said = [*self._said[-50:], str(event.get("stdout", ""))]
            return
        self.played = True
        ended = task_event(kind, data)
        if ended.state == "failed" and awaited and awaited.item_failure:
            # Of a loop, Ansible says only: One or more items failed.
            ended = replace(ended, message=awaited.item_failure)
        if ended.state in {"ok", "changed"}:
            self._reached.add(ended.host)
        elif ended.state == "unreachable":
            silent = time.monotonic() - awaited.since if awaited else 0
            why = (awaited.item_failure if awaited else "") or unreachable_reason(ended.message)
            end = HostRun("unreachable", why, ended.task, silent, self._log)
            self._ended[ended.host] = end
            silence = {**ended.result, "silent": silent}
            ended = replace(ended, message=why, result=silence, ended=end)
        elif ended.state == "failed" and not data.get("ignore_errors"):
            end = HostRun("failed", f"{ended.task}: {ended.message}", log=self._log)
            self._ended[ended.host] = end
            ended = replace(ended, ended=end)
        self._on_event(ended)

    def _take_stall(self, host: str, result: object) -> None:
        """Note that a host was not silent until now: its message says how long nothing moved."""
        if isinstance(result, dict) and result.get("stalled") and host in self._awaited:
            self._awaited[host].since = time.monotonic()

    def _take_stats(self, data: Mapping[str, Any]) -> None:
        """Take in the final counts. A failed task that a `rescue` handled fails no host."""
        self._reached |= {*(data.get("ok") or ()), *(data.get("skipped") or ())}
        failed = {*(data.get("failures") or ()), *(data.get("dark") or ())}
        self._ended = {host: end for host, end in self._ended.items() if host in failed}

    def hosts(self, limit: Iterable[str]) -> dict[str, HostRun]:
        """Return how the playbook ended for each host, also for those it never ran on."""
        never = f"Ansible never ran on this host. {self.complaint()}".strip()
        silent, ok = HostRun("failed", never, log=self._log), HostRun("ok", log=self._log)
        killed = "ansible-playbook ended during this step, perhaps killed for lack of memory"
        cut = {
            host: HostRun("failed", f"{awaited.task}: {killed} (see dmesg).", log=self._log)
            for host, awaited in self._awaited.items()
        }
        return {
            host: self._ended.get(host)
            or cut.get(host)
            or (ok if host in self._reached else silent)
            for host in limit
        }

    def complaint(self) -> str:
        """Return the error that Ansible printed outside of tasks, or ""."""
        lines = plain("\n".join(self._said)).splitlines()
        errors = [line for line in lines if "ERROR" in line]
        return sentence("\n".join(errors)) if errors else ""


def task_event(kind: str, data: Mapping[str, Any]) -> TaskEvent:
    """Convert one of ansible-runner's events into a TaskEvent."""
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
    """Return why a task failed: its message, and the end of the command's output."""
    if (late := result.get("timedout")) and isinstance(late, Mapping):
        step = str(data.get("task")).rpartition(" : ")[2]
        return f"The step {step!r} did not end within {late.get('period')} s."
    reasons = (result.get(name) for name in ("msg", "reason", "exception", "censored"))
    message = str(next(filter(None, reasons), ""))
    if re.fullmatch(r"non-zero return code|MODULE FAILURE.*|", message.strip(), re.DOTALL):
        output = result.get("stderr") or result.get("module_stderr") or result.get("stdout") or ""
        message = f"{message.partition(chr(10))[0]}: {str(output).strip()[-_LONGEST:]}"
    return plain(message).strip(" :\n")[-_LONGEST:]
