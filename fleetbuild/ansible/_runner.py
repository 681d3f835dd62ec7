"""Start Ansible's programs in a private directory; the only module that uses ansible-runner.

In: a program, its arguments, environment and passwords. Out: its output, or its events.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetbuild.ansible import _watch
from fleetbuild.ansible.connections import end_connections, signal_run
from fleetbuild.errors import FleetbuildError
from fleetbuild.files import ansible_dir
from fleetbuild.foreign_settings import refuse_foreign_ansible_cfg

# Settings that turn off messages and prompts for a person at a terminal.
_QUIET = {
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_FORCE_COLOR": "0",
    "ANSIBLE_DEPRECATION_WARNINGS": "False",
    "ANSIBLE_LOCALHOST_WARNING": "False",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
    "ANSIBLE_DEVEL_WARNING": "False",
    "ANSIBLE_ASK_PASS": "False",
    "ANSIBLE_BECOME_ASK_PASS": "False",
    "ANSIBLE_ASK_VAULT_PASS": "False",
}

_PLUGINS = "plugins/plugin_utils/display"
_GRACE = 5.0  # seconds for Ansible to stop its workers by itself

# For output that is parsed: no extra messages, and no copy in a log file.
_SILENT = {"ANSIBLE_VERBOSITY": "0", "ANSIBLE_DEBUG": "False", "ANSIBLE_LOG_PATH": os.devnull}


@dataclass(frozen=True)
class Finished:
    """The exit code and output of a program."""

    code: int
    out: str
    err: str


@contextmanager
def private_dir() -> Iterator[Path]:
    """Create a directory for one run, readable only by its owner, in memory if possible.

    If this process is killed, a watcher process kills the run's processes and removes the
    directory; if the watcher is killed too, the next run does so (`_watch.sweep`).
    """
    parent = _watch.MEMORY if os.access(_watch.MEMORY, os.W_OK | os.X_OK) else None
    path = Path(tempfile.mkdtemp(prefix=_watch.PREFIX, dir=parent))
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _watched(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


@contextmanager
def _watched(private: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", _watch.__file__, private],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # only the controller handles Ctrl-C and a closed terminal
        bufsize=0,
    ) as watcher:
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):
                assert watcher.stdin is not None  # noqa: S101 (a pipe, as asked for above)
                watcher.stdin.write(b".")


def config_files() -> list[Path]:
    """Return the files in which Ansible may look for its configuration."""
    named = os.environ.get("ANSIBLE_CONFIG")
    places = [Path("ansible.cfg"), Path("~/.ansible.cfg"), Path("/etc/ansible/ansible.cfg")]
    if named:  # a file, or a folder that has one
        places = [Path(named), Path(named, "ansible.cfg"), *places]
    paths = [path.expanduser() for path in places]
    return [path for path in paths if path.is_file()]


def ignored_files() -> str:
    """Return patterns of files in an inventory directory that Ansible leaves out.

    These are fleetbuild.yml, and the user's own patterns, which a variable would replace.
    """
    own = os.environ.get("ANSIBLE_INVENTORY_IGNORE_REGEX", "")
    if not own:
        file = configparser.RawConfigParser(inline_comment_prefixes=(";",), strict=False)
        with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
            file.read(config_files()[:1])  # Ansible takes the first one alone
        places = (("inventory", "ignore_patterns"), ("defaults", "inventory_ignore_patterns"))
        own = next((file[part][key] for part, key in places if file.has_option(part, key)), "")
    return ",".join(filter(None, [own, r"^fleetbuild\.ya?ml$"]))


def capture(
    program: str,
    arguments: Sequence[str],
    *,
    private: Path,
    env: Mapping[str, str] = {},
    on_start: Callable[[], None] = lambda: None,
    pass_fds: Sequence[int] = (),
) -> Finished:
    """Run an ansible program without prompts and events, and return its output.

    `on_start` is called once it runs. This does not use ansible-runner, whose import takes 0.1 s.
    Nothing is written to the user's log_path, because inventories contain passwords.
    """
    with subprocess.Popen(
        [find_program(program), *arguments],
        env={**os.environ, **_variables(private, {**_SILENT, **env})},
        pass_fds=pass_fds,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as process:
        try:
            on_start()
            out, err = process.communicate()
        except BaseException:
            process.kill()
            raise
    return Finished(process.returncode, out, err)


def stream(
    program: str,
    arguments: Sequence[str],
    *,
    private: Path,
    env: Mapping[str, str] = {},
    passwords: Mapping[str, str] = {},
    on_event: Callable[[dict[str, Any]], None],
    tick: Callable[[], None] = lambda: None,
    stopping: Callable[[], bool] = lambda: False,
    log: Path | None = None,
) -> int:
    """Run an ansible program, pass on its events, and return its exit code; -1 if a signal ends it.

    `passwords` maps patterns of prompts to answers. `tick` is called ten times a second. Ctrl-C or
    `stopping` ends the program and all of its processes.
    """
    import ansible_runner  # noqa: PLC0415 (takes 0.1 s, and --help needs none of it)

    _refuse_without_terminals()
    # ansible-runner takes its settings only from this file.
    (private / "env").mkdir(mode=0o700)
    (private / "env" / "settings").write_text('{"pexpect_timeout": 0.2}', encoding="utf-8")

    def handle(event: dict[str, Any]) -> bool:
        on_event(event)
        return False  # ansible-runner keeps no copy on disk

    def play(cancelled: Callable[[], bool]) -> int:
        *_, code = ansible_runner.run_command(
            **_command(program, arguments),
            **_place(private, env),
            passwords=dict(passwords),
            event_handler=handle,
            cancel_callback=cancelled,
        )
        return -1 if code is None else int(code)

    try:
        return _interruptible(play, private, tick, stopping)
    finally:
        if log is not None:
            _keep(private / "artifacts" / "run" / "stdout", log)


def _refuse_without_terminals() -> None:
    """Refuse a machine that gives no pseudo-terminal, in which ansible-runner starts Ansible."""
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as problem:
        raise FleetbuildError(
            f"This machine gives no pseudo-terminal, and Ansible runs in one: {problem.strerror}.",
            "Compare kernel.pty.nr with kernel.pty.max (sysctl kernel.pty), and see whether"
            " /dev/pts is mounted; then run the same command again.",
        ) from None


def _interruptible(
    work: Callable[[Callable[[], bool]], int],
    private: Path,
    tick: Callable[[], None],
    stopping: Callable[[], bool],
) -> int:
    """Do the work in a thread; Ctrl-C or `stopping` ends it and all of its processes."""
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
    """Interrupt Ansible as Ctrl-C does; then kill remaining processes and detached workers."""
    signal_run(private, signal.SIGINT, children_only=True)
    thread.join(_GRACE)
    give_up.set()
    thread.join(_GRACE)
    signal_run(private, signal.SIGKILL)


def _command(program: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the command for ansible-runner; `env -u` keeps it from overriding ansible.cfg."""
    own = "ANSIBLE_HOST_KEY_CHECKING"
    flags = [] if own in os.environ else ["-u", own]
    return {
        "executable_cmd": "env",
        "cmdline_args": [*flags, find_program(program), *arguments],
    }


def _place(private: Path, env: Mapping[str, str]) -> dict[str, Any]:
    return {
        "private_data_dir": str(private),
        "ident": "run",
        "host_cwd": str(Path.cwd()),  # so that ./ansible.cfg and relative paths work
        "envvars": _variables(private, env),
        "fact_cache_type": "as configured",
        "quiet": True,
    }


def _variables(private: Path, env: Mapping[str, str]) -> dict[str, str]:
    refuse_foreign_ansible_cfg()
    own = {
        "FLEETBUILD_RUN": str(private),
        "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
        "ANSIBLE_INVENTORY_IGNORE_REGEX": ignored_files(),
        "ANSIBLE_CALLBACK_PLUGINS": ":".join(
            filter(
                None, [str(ansible_dir() / _PLUGINS), os.environ.get("ANSIBLE_CALLBACK_PLUGINS")]
            )
        ),
    }
    if "UTF" not in (os.environ.get("LC_ALL") or "UTF-8").upper():
        own["LC_ALL"] = "C.UTF-8"  # Ansible starts with no other encoding, and cron has LC_ALL=C
    return {**_QUIET, "PATH": _path(), **own, **env}


def _scripts() -> str:
    return sysconfig.get_path("scripts")


def _path() -> str:
    return os.pathsep.join((_scripts(), os.environ.get("PATH", os.defpath)))


def find_program(name: str) -> str:
    """Return the path of an ansible program: next to this Python, else on PATH."""
    path = shutil.which(name, path=_path())
    if path is None:
        raise FleetbuildError(
            f"{name} is neither in {_scripts()} nor on PATH.",
            "Install ansible-core in the environment that fleetbuild runs in.",
        )
    return path


def _keep(output: Path, log: Path) -> None:
    if output.exists():
        shutil.copyfile(output, log)
