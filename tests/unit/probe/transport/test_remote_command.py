"""What goes to a node's shell, tried in a real one with a stand-in for sudo."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.models import Become
from fleetbuild.probe.transport.base import LARGEST, Answer, Deadline, NoAnswer, remote_command
from fleetbuild.probe.transport.process import Process

SCRIPT = b"echo ran as ${SUDO_STAND_IN:-me} with $1 and $2\ncat\n"
ARGUMENTS = ("a b'c", "$HOME")


def run(become: Become | None) -> Answer:
    command, stdin = remote_command(become, SCRIPT, ARGUMENTS)
    return Process(["/bin/sh", "-c", command]).run(stdin, Deadline(10))


@pytest.fixture
def sudo(tmp_path: Path) -> str:
    """Reads its password as sudo -S does, unless it is passwordless; tells what it was given."""
    program = tmp_path / "sudo"
    program.write_text(
        f"""#!/bin/sh
echo "$*" > {tmp_path}/argv
if [ ! -e {tmp_path}/nopasswd ]; then
  IFS= read -r word
  [ "$word" = 'se"c$r et' ] || {{ echo 'sudo: 1 incorrect password attempt' >&2; exit 1; }}
fi
while [ "$1" != -- ]; do shift; done; shift
SUDO_STAND_IN=root exec "$@"
"""
    )
    program.chmod(0o755)
    return str(program)


def test_without_become_the_script_is_sent_on_stdin() -> None:
    answer = run(None)
    assert (answer.code, answer.out) == (0, b"ran as me with a b'c and $HOME\n")


@pytest.mark.parametrize("passwordless", [False, True])
def test_sudo_reads_only_the_password(sudo: str, passwordless: bool, tmp_path: Path) -> None:
    if passwordless:
        (tmp_path / "nopasswd").touch()
    answer = run(Become(password='se"c$r et', exe=sudo))
    # A password that nobody asked for is not taken for a part of the script or its input.
    assert (answer.code, answer.out) == (0, b"ran as root with a b'c and $HOME\n")
    assert 'se"c$r et' not in (tmp_path / "argv").read_text()


def test_a_wrong_password_is_tried_once(sudo: str) -> None:
    answer = run(Become(password="wrong", exe=sudo))
    assert answer.code == 1
    assert answer.err.count(b"incorrect") == 1


def test_sudo_without_a_password_does_not_ask() -> None:
    command, stdin = remote_command(Become(user="build er"), SCRIPT, ())
    assert command == "sudo -H -n -u 'build er' -- sh -s --"
    assert stdin == SCRIPT
    assert remote_command(Become(flags="-E -S"), b"", ())[0].startswith("sudo -E -n -u root")


def test_doas_is_supported_and_other_methods_are_refused() -> None:
    assert remote_command(Become(method="doas"), b"", ())[0] == "doas -n -u root -- sh -s --"
    for become in (Become(method="su"), Become(method="doas", password="x")):
        with pytest.raises(NoAnswer, match="is not supported"):
            remote_command(become, b"", ())
    with pytest.raises(NoAnswer, match="more than one line"):
        remote_command(Become(password="a\nb"), b"", ())


def test_a_process_ends_at_its_deadline_with_all_it_started() -> None:
    with pytest.raises(TimeoutError):
        Process(["/bin/sh", "-c", "sleep 60 & sleep 60"]).run(b"", Deadline(0.3))


def test_a_process_that_prints_without_end_is_stopped() -> None:
    with pytest.raises(NoAnswer, match="more than 16 MB"):
        Process(["cat", "/dev/zero"]).run(b"", Deadline(20))
    assert LARGEST == 16 * 2**20


def test_a_process_that_does_not_read_its_input_does_not_block() -> None:
    assert Process(["true"]).run(b"x" * 2**20, Deadline(10)).code == 0


def test_a_killed_process_does_not_start() -> None:
    process = Process(["sleep", "60"])
    process.kill()
    with pytest.raises(TimeoutError):
        process.run(b"", Deadline(10))
