"""SIGTERM and a terminal that closes end an apply as Ctrl-C does, with a real Ansible under way."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories.processes import left_behind

# An apply in the middle of a playbook: the fleet is made up, its first playbook is a real one.
PROGRAM = """
import fcntl, os, signal, sys, termios
from dataclasses import replace
from pathlib import Path

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the tests' parent may ignore them
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
if os.isatty(0):
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

from fleetbuild import cli
from fleetbuild.ansible import Playbooks
from fleetbuild.apply.stages import carry_out
from fleetbuild.cli.session import Session
from fleetbuild.cli.show.progress import listening
from tests.factories.fleets import facts
from tests.factories.runs import FakeFleet, FakeStore, group, plan

folder = Path(sys.argv[1])

def slow(name):
    inventory = folder / "hosts.yml"
    Playbooks(inventory=str(inventory), state_dir=folder / "state").run(
        str(folder / "slow.yml"), limit=["here"], extravars={}, on_event=lambda event: None)

@cli.app.command()
def stopped(_: str) -> None:
    with Session(state_dir=folder / "state") as run:
        (folder / "store").mkdir()
        fleet = FakeFleet({"avx-1": facts("avx")}, FakeStore(folder / "store"), during=slow)
        made = plan(group("avx", ["avx-1"]))
        with listening(run.out, made.changes) as told:
            carry_out(replace(fleet.run(made, folder / "state"), on_event=told))

cli.app.registered_commands = [each for each in cli.app.registered_commands
                               if each.callback is stopped or each.callback.__name__ == "facts"]
sys.argv = ["fleetbuild", "stopped", "now"]
cli.main()
"""
SLOW = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: touch {folder}/began
    - ansible.builtin.command: sleep 120
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.yml").write_text(SLOW.format(folder=tmp_path))
    python = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"here": python}}}))
    return tmp_path


def start(folder: Path, terminal: int | None = None) -> subprocess.Popen[bytes]:
    """The program, once Ansible is at its second task."""
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder)],
            start_new_session=True,
            stdin=terminal or subprocess.DEVNULL,
            stdout=terminal or subprocess.DEVNULL,
            stderr=terminal or errors,
        )
    wait_for(lambda: (folder / "began").exists() or process.poll() is not None, 90)
    assert process.poll() is None, said(folder)
    return process


def said(folder: Path) -> str:
    return (folder / "stderr").read_text()


def wait_for(true: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)


def ended_well(folder: Path, process: subprocess.Popen[bytes]) -> None:
    assert process.wait(60) == 130
    assert left_behind(folder) == []
    journal = (folder / "state" / "journal" / "plan.jsonl").read_text().splitlines()
    assert json.loads(journal[-1])["error"] == "interrupted"
    assert not (folder / "state" / "logs" / "traceback.txt").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("times", [1, 3])
def test_a_signal_ends_an_apply_as_ctrl_c_does(
    folder: Path, number: signal.Signals, times: int
) -> None:
    process = start(folder)
    for _ in range(times):  # a shell and the kernel both send SIGHUP; systemd may send both
        process.send_signal(number)
        time.sleep(0.05)
    ended_well(folder, process)
    assert "error: Interrupted. No node is between two releases" in said(folder)
    assert "fix: To continue from here: fleetbuild apply" in said(folder)
    assert "Traceback" not in said(folder)


def test_a_terminal_that_closes_ends_an_apply_as_ctrl_c_does(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(folder, theirs)
    os.close(theirs)
    os.close(ours)
    ended_well(folder, process)


def test_an_apply_that_ignores_hangups_goes_on_without_its_terminal(tmp_path: Path) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from fleetbuild.cli.show import Output\n"
        "out = Output()\n"
        "print('ready', flush=True)\n"
        "time.sleep(2)\n"
        "out.say('a'); out.warn('b'); out.console.print('c')\n"
        f"open({str(tmp_path / 'end')!r}, 'w').write('reached')\n"
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"\n" not in said:  # the line end may be a write of its own
        said += os.read(ours, 100)
    os.close(ours)
    assert process.wait(60) == 0
    assert (tmp_path / "end").read_text() == "reached"


LOADING = """
import sys, types
def interrupted(name):
    raise KeyboardInterrupt
sys.modules["fleetbuild.cli"] = types.ModuleType("fleetbuild.cli")
sys.modules["fleetbuild.cli"].__getattr__ = interrupted
from fleetbuild.__main__ import main
main()
"""


def test_ctrl_c_while_the_program_loads_ends_it_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
