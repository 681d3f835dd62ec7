"""From a login to OpenSSH's options, and from OpenSSH's words to reasons."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fleetbuild.models import Login
from fleetbuild.probe.probing import transport_for
from fleetbuild.probe.transport import fabric
from fleetbuild.probe.transport.base import Answer, Deadline, NoAnswer
from fleetbuild.probe.transport.fabric import FabricTransport, beyond_paramiko
from fleetbuild.probe.transport.failure_reasons import ssh_problem, unusable_answer
from fleetbuild.probe.transport.openssh import ProgramTransport, _Askpass, options, settle
from fleetbuild.probe.transport.process import Process


def login(**said: object) -> Login:
    return Login.model_validate({"host": "n1.example", **said})


def test_options_have_ansibles_order() -> None:
    words = options(
        login(
            port=2200,
            user="al ice",
            key_file="~/k",
            host_key_checking=False,
            ssh_args=("-C",),
            ssh_common_args=("-o", "User=late"),
        )
    )
    assert words[0] == "-C"
    assert words[-2:] == ["-o", "User=late"]
    said = words[1:-2][1::2]
    assert said[:3] == [
        "StrictHostKeyChecking=no", "Port=2200", f'IdentityFile="{Path("~/k").expanduser()}"',
    ]  # fmt: skip
    assert said[-1] == 'User="al ice"'
    assert "PasswordAuthentication=no" in said
    assert "PasswordAuthentication=no" not in options(login(password="x"))


@pytest.mark.parametrize(
    ("config", "own", "left", "seconds"),
    [("", {}, 30, 10), ("", {"connect_timeout": 20}, 30, 20), ("", {}, 5, 5),
     ("ConnectTimeout 3", {"connect_timeout": 20}, 30, 3), ("ConnectTimeout 0", {}, 30, 10)],
)  # fmt: skip
def test_an_address_that_never_answers_does_not_take_the_whole_probe(
    config: str, own: dict[str, int], left: float, seconds: float, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(config + "\n")
    user = login(ssh_common_args=("-F", str(tmp_path / "config")), **own)
    connection = fabric._connection(user, settle(user, Deadline(9)), Deadline(left))
    assert connection.connect_timeout == pytest.approx(seconds, abs=1)


@pytest.mark.parametrize("own", [{"connect_timeout": 1}, {"ssh_args": ("-oConnectTimeout=1",)}])
@pytest.mark.parametrize(
    "proxy",
    ["sleep 60", "nohup sleep 60"],  # as below a fleetbuild that nohup started
)
def test_a_node_behind_a_bastion_that_never_answers_does_not_take_the_whole_probe(
    own: dict[str, object], proxy: str
) -> None:
    user = login(ssh_common_args=("-F", "none", "-o", f"ProxyCommand={proxy}"), **own)
    transport, gate = transport_for(user)
    assert gate == proxy
    began = time.monotonic()
    with pytest.raises(NoAnswer, match=r"connection to n1\.example timed out"):
        transport.run("true", b"", Deadline(30))
    assert time.monotonic() - began < 10


def test_settle_returns_the_effective_openssh_settings(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host n1.example\n  HostName 10.0.0.1\n  Port 2022\n")
    settings = settle(login(ssh_common_args=("-F", str(config))), Deadline(5))
    assert settings["hostname"] == ("10.0.0.1",)
    assert settings["port"] == ("2022",)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, FabricTransport),
        ({"password": "x"}, FabricTransport),
        ({"host_key_checking": False}, FabricTransport),
        ({"ssh_args": ("-C", "-o", "ControlMaster=auto")}, FabricTransport),
        ({"ssh_common_args": ("-J", "gate")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "ProxyCommand=nc %h %p")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "HostKeyAlias=x")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "Ciphers=aes256-gcm@openssh.com")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "CertificateFile=/x")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "StrictHostKeyChecking=accept-new")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "IdentityFile=~/keys/%h")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "PubkeyAuthentication=no")}, ProgramTransport),
        ({"ssh_common_args": ("-o", "IdentityAgent=/x")}, ProgramTransport),
    ],
)  # fmt: skip
def test_only_settings_that_paramiko_supports_select_it(
    said: dict[str, object], kind: type
) -> None:
    assert isinstance(transport_for(login(ssh_args=("-F", "none"), **said) if "ssh_args" not in said
                             else login(**said))[0], kind)  # fmt: skip


def test_connections_through_one_bastion_share_a_limit() -> None:
    assert transport_for(login(ssh_common_args=("-J", "gate")))[1] == "gate"


def test_a_login_by_certificate_uses_openssh(tmp_path: Path) -> None:
    (tmp_path / "k-cert.pub").touch()
    one = login(ssh_args=("-F", "none"), key_file=str(tmp_path / "k"))
    assert beyond_paramiko(one, settle(one, Deadline(5))) == "a certificate"


@pytest.mark.parametrize("said", [{"connection": "winrm"}, {"host": "-oProxyCommand=x"},
                                  {"ssh_common_args": ("-o", "NoSuch=1")},
                                  {"ssh_executable": "/no/ssh"}])  # fmt: skip
def test_invalid_logins_are_errors(said: dict[str, object]) -> None:
    with pytest.raises(NoAnswer) as caught:
        transport_for(login(**said))
    assert caught.value.fix


@pytest.mark.parametrize(
    ("complaint", "reason"),
    [
        (b"ssh: connect to host h port 22: Connection refused\r\n", "connection refused"),
        (b"ssh: connect to host h port 22: No route to host", "no route"),
        (b"ssh: connect to host h port 22: Connection timed out", "timed out"),
        (b"ssh: Could not resolve hostname h: Name or service not known", "no address is known"),
        (b"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
         "HOST KEY CHANGED"),
        ((b"No ED25519 host key is known for h and you have requested strict checking.\n"
         b"Host key verification failed."), "host key is not known"),
        (b"u@h: Permission denied (publickey,password).", "login refused"),
        ((b"channel 0: open failed: connect failed: No route to host\nstdio forwarding failed\n"
         b"kex_exchange_identification: Connection closed by remote host"), "its jump host"),
        (b"kex_exchange_identification: read: Connection reset by peer", "closed the connection"),
        (b"\x1b[31msomething else\x07", "ssh failed: ?[31msomething else?"),
    ],
)  # fmt: skip
def test_messages_of_ssh_become_sentences(complaint: bytes, reason: str) -> None:
    problem = ssh_problem(complaint, login(port=2200))
    assert problem is not None
    assert reason in problem.reason
    assert problem.fix
    assert ssh_problem(b"", login()) is None


def test_the_command_for_an_unknown_host_key_writes_where_ansible_reads() -> None:
    complaint = b"No ED25519 host key is known for h.\nHost key verification failed."
    args = ("-o", "UserKnownHostsFile=/my hosts")
    fixed = ssh_problem(complaint, login(ssh_common_args=args, port=2200))
    assert fixed is not None
    assert "`ssh -p 2200 -o 'UserKnownHostsFile=/my hosts' n1.example`" in fixed.fix
    usual = login(ssh_args=("-C", "-o", "ControlMaster=auto", "-o", "ControlPersist=60s"))
    assert "ControlMaster" not in ssh_problem(complaint, usual).fix  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(1, b"", b"sudo: a password is required"), "sudo needs a password"),
        (
            Answer(1, b"", b"Sorry, try again.\nsudo: no password was provided"),
            "refused the become",
        ),
        (Answer(1, b"", b"al is not in the sudoers file."), "does not allow"),
        (Answer(127, b"", b"sh: 1: sudo: not found"), "no sudo"),
        (Answer(1, b"This account is currently not available."), "no shell"),
        (Answer(127, b"", b"ksh: what"), "no POSIX sh"),
        (Answer(None, b""), "ended before"),
        (Answer(0, b"garbage" * 999), "malformed result (exit code 0)"),
    ],
)
def test_an_answer_without_sections_is_explained(answer: Answer, reason: str) -> None:
    problem = unusable_answer(answer, login())
    assert reason in problem.reason
    assert len(problem.reason) < 300


@pytest.mark.parametrize(
    ("prompt", "answered"),
    [
        ("al@n1.example's password: ", True),
        ("(al@n1.example) Password: ", True),
        ("(al@n1.example) (al@gate) Password: ", True),
        ("al@gate's password: ", False),
        ("(al@gate) Password: ", False),
        ("(al@gate) (x@n1.example) ", False),
        ("(al@gate) al@n1.example's password: ", False),
        ("(al@gate", False),
        ("al@an1.example's password: ", False),
        ("bo@n1.example's password: ", False),
        ("(bo@n1.example) Password: ", False),
        ("xal@n1.example's password: ", False),
        ("(al@n1.example)", False),
        ("al@n1.example's password: \nal@n1.example's password: ", False),
        ("Are you sure you want to continue connecting (yes/no/[fingerprint])? ", False),
        ("Enter passphrase for key '/k': ", False),
        ("Enter passphrase for key 'al@n1.example's password: ", False),
    ],
)
def test_the_password_is_sent_only_to_the_node(prompt: str, answered: bool) -> None:
    with _Askpass(login(password="s3cret").password, ("al", "n1.example")) as env:
        answer = Process([env["SSH_ASKPASS"], prompt], env).run(b"", Deadline(5))
        assert Path(env["SSH_ASKPASS"]).stat().st_mode & 0o077 == 0
        assert "s3cret" not in Path(env["SSH_ASKPASS"]).read_text()
    assert (answer.code == 0) == answered
    assert (b"s3cret" in answer.out) == answered
    assert not Path(env["SSH_ASKPASS"]).exists()


def test_pattern_characters_in_a_name_are_literal() -> None:
    with _Askpass(login(password="s3cret").password, ("*", "*")) as env:
        for prompt in ("al@gate's password: ", "(al@gate) Password: "):
            assert Process([env["SSH_ASKPASS"], prompt], env).run(b"", Deadline(5)).code == 1


def ssh_that(tmp_path: Path, does: str) -> str:
    """A program in the place of ssh."""
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o700)
    return str(program)


@pytest.mark.parametrize("args", [(), ("-A", "-X"), ("-Y",), ("-o", "ForwardAgent=yes")])
def test_nothing_is_forwarded_to_a_node(tmp_path: Path, args: tuple[str, ...]) -> None:
    config = tmp_path / "config"
    config.write_text(
        "ForwardAgent yes\nForwardX11 yes\nForwardX11Trusted yes\nTunnel yes\n"
        "PermitLocalCommand yes\nLocalCommand touch /tmp/x\nLocalForward 9 h:9\n"
    )
    one = login(
        ssh_executable=ssh_that(tmp_path, 'exec ssh -G "$@"'),
        ssh_args=args,
        ssh_common_args=("-F", str(config), *args),
    )
    said = ProgramTransport(one, {}).run("true", b"", Deadline(5)).out.decode().splitlines()
    for line in (
        "forwardagent no", "forwardx11 no", "permitlocalcommand no", "tunnel false",
        "clearallforwardings yes",
    ):  # fmt: skip
        assert line in said
    assert not [line for line in said if line.startswith("localforward")]


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ("OpenSSH_8.4p1 Debian-5", False),
        ("OpenSSH_7.4p1, OpenSSL 1.0.2k-fips", False),
        ("Sun_SSH_1.1", False),
        ("OpenSSH_8.5p1", True),
        ("OpenSSH_10.0p2", True),
        ("OpenSSH_for_Windows_9.5p1", True),
    ],
)
def test_keyboard_interactive_prompts_need_an_openssh_that_names_the_login(
    tmp_path: Path, version: str, allowed: bool
) -> None:
    program = ssh_that(tmp_path, f'[ "$1" = -V ] && echo "{version}" >&2 || printf "%s\\n" "$@"')
    one = login(ssh_executable=program, password="x")
    said = ProgramTransport(one, {}).run("true", b"", Deadline(5)).out.decode().splitlines()
    assert ("KbdInteractiveAuthentication=no" not in said) == allowed


def test_a_login_by_key_that_failed_names_the_key(tmp_path: Path) -> None:
    said = b"u@h: Permission denied (publickey)."

    def problem(key: str | None) -> NoAnswer:
        found = ssh_problem(said, Login(host="h", user="u", key_file=key))
        assert found
        return found

    missing = problem(str(tmp_path / "nokey"))
    assert "nokey cannot be read: No such file or directory" in missing.reason
    assert "ansible_ssh_private_key_file" in missing.fix
    (tmp_path / "key").touch()
    refused = problem(str(tmp_path / "key"))
    assert f"does not accept the key {tmp_path}/key (publickey)" in refused.reason
    assert "authorized_keys" in refused.fix
    assert "no key of ~/.ssh" in problem(None).reason


def test_a_changed_host_key_names_the_file_that_holds_the_old_one() -> None:
    said = (
        b"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n"
        b"Offending ED25519 key in /srv/known hosts:7\nHost key verification failed."
    )
    found = ssh_problem(said, Login(host="h", port=2222))
    assert found
    assert found.fix.endswith("ssh-keygen -f '/srv/known hosts' -R '[h]:2222'")
