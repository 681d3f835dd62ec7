"""A vaulted password is found nowhere after a run, with a log and a prying callback turned on."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetbuild.ansible import Secrets, _watch
from fleetbuild.errors import InventoryError
from fleetbuild.probe.inventory import read_inventory

CANARY = f"c4nary-{os.getpid()}-7f3a91"  # other sessions may test at the same time
_PRYING = """
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_NAME = "prying"
    CALLBACK_TYPE = "notification"

    def v2_on_any(self, *args, **kwargs):
        with open("PRIED", "a") as file:
            for one in (*args, *kwargs.values()):
                inner = {name: getattr(one, name, None) for name in (
                    "_result", "_return_data", "_task_fields", "task_fields", "_exception")}
                print(repr(one), inner, getattr(one, "__dict__", ""), file=file)
"""
_RUN = """
import sys, time
from pathlib import Path
from fleetbuild.ansible import Playbooks, Secrets, playbooks
from fleetbuild.probe.inventory import read_inventory
secrets = Secrets(vault_passwords=(("", "open-CANARY"),), become_pass="b-CANARY")
read_inventory("inv.yml", secrets=secrets)
Path("read").touch()
playbooks.ansible_dir = Path.cwd
Playbooks(inventory="inv.yml", state_dir=Path("state"), secrets=secrets).run(
    "try.yml", limit=["n"], extravars={}, on_event=lambda event: None)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a vaulted password, a log, a callback, and a playbook that takes its time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "callbacks").mkdir()
    pried = tmp_path / "pried"
    (tmp_path / "callbacks" / "prying.py").write_text(_PRYING.replace("PRIED", str(pried)))
    (tmp_path / "ansible.cfg").write_text(
        f"[defaults]\nlog_path={tmp_path}/ansible.log\ncallback_plugins={tmp_path}/callbacks\n"
        "verbosity=3\ncallbacks_enabled=prying\n"
    )
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "try.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.command: sleep 4712\n"
    )
    return tmp_path


def inventory(place: Path, extra: str = "") -> None:
    program = Path(sys.executable).with_name("ansible-vault")
    (place / "password").write_text(f"open-{CANARY}")
    made = subprocess.run(
        [program, "encrypt_string", "--vault-password-file", "password", CANARY],
        capture_output=True, text=True, check=True,
        env={**os.environ, "ANSIBLE_VERBOSITY": "0"},
    ).stdout  # fmt: skip
    (place / "password").unlink()
    secret = made.replace("\n", "\n        ")
    (place / "inv.yml").write_text(
        "all:\n  hosts:\n    n:\n      ansible_connection: local\n"
        "      ansible_python_interpreter: /usr/bin/python3\n      ansible_host: 127.0.0.1\n"
        f"      ansible_password: {secret}\n      ansible_become_password: {secret}\n"
        f"      ansible_user: '{{{{ ansible_password[:0] }}}}me'\n{extra}"
    )


def left(place: Path) -> list[Path]:
    """Files with the canary below the project, which holds home and tmp, and in /dev/shm."""
    found = []
    # os.walk passes over folders that tests beside this one remove from /dev/shm meanwhile.
    walked = itertools.chain(os.walk(place), os.walk("/dev/shm"))
    for path in (Path(folder, name) for folder, _, names in walked for name in names):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and CANARY.encode() in path.read_bytes():
                found.append(path)
    return found


def test_a_rendered_vault_value_reaches_no_log_and_no_callback(place: Path) -> None:
    inventory(place)
    program = Path(sys.executable).with_name("ansible-playbook")
    play = place / "debug.yml"
    play.write_text(
        "- hosts: all\n  gather_facts: false\n  tasks: [{debug: {msg: shown-to-all}}]\n"
    )
    subprocess.run([program, "-i", "localhost,", play], check=True, capture_output=True)
    for file in ("pried", "ansible.log"):  # both are on, and would hold what a task shows
        assert "shown-to-all" in (place / file).read_text()
    secrets = Secrets(vault_passwords=(("", f"open-{CANARY}"),))
    node = read_inventory("inv.yml", secrets=secrets)["n"]
    assert node.login.password is not None
    assert node.login.password.get_secret_value() == CANARY
    assert node.login.user == "me"
    assert left(place) == []


def test_a_failing_template_does_not_show_its_secret(place: Path) -> None:
    inventory(place, "      ansible_port: \"{{ {'a': 1}[ansible_password] }}\"\n")
    secrets = Secrets(vault_passwords=(("", f"open-{CANARY}"),))
    with pytest.raises(InventoryError, match="cannot be rendered"):
        read_inventory("inv.yml", secrets=secrets)
    assert left(place) == []


def processes(mark: str) -> list[str]:
    """Command lines that hold a word, this process's own aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and int(path.parts[2]) != os.getpid():
                found.append(path.with_name("cmdline").read_bytes().decode())
        except OSError:
            continue
    return [line for line in found if "ansible" in line or "sleep" in line]


def await_true(what: object, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not what():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def controller(place: Path) -> Iterator[subprocess.Popen[bytes]]:
    inventory(place)
    with subprocess.Popen(
        [sys.executable, "-c", _RUN.replace("CANARY", CANARY)], cwd=place
    ) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("during", ["render.json", "sleep\x004712"], ids=["rendering", "a task"])
def test_a_killed_controller_leaves_no_process_and_no_file(
    place: Path, controller: subprocess.Popen[bytes], during: str
) -> None:
    mine = f"HOME={place}/home"
    await_true(lambda: any(during in line for line in processes(mine)))
    assert during == "render.json" or left(place) == []  # not even while the task lasts
    controller.send_signal(signal.SIGKILL)
    await_true(lambda: not processes(mine), 15)
    await_true(lambda: left(place) == [], 5)


def test_files_of_a_killed_watcher_are_removed_by_the_next_run_with_a_message(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_watch, "_YOUNG", -1.0)
    old = Path(tempfile.mkdtemp(prefix=_watch.PREFIX))
    (old / "vault-0").write_text(CANARY)
    sleeper = subprocess.Popen(["sleep", "60"], env={"FLEETBUILD_RUN": str(old)})
    (place / "hosts").write_text("a\n")
    warnings = read_inventory("hosts").warnings
    assert any(f"An earlier run was killed. Removed its directories: {old}" in w for w in warnings)
    assert sleeper.wait(5) == -signal.SIGKILL
    assert left(place) == []
