"""When one `ssh -G` answers for many nodes, and when it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetbuild.models import Login
from fleetbuild.probe.transport import openssh
from fleetbuild.probe.transport.base import Deadline, NoAnswer
from fleetbuild.probe.transport.openssh import Settings, SharedSettings, settle

HOSTS = ("n1", "n2.example", "10.0.0.3")


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Every `ssh -G` that was asked."""
    asked: list[list[str]] = []
    real = openssh.ask_ssh

    def counting(words: Any, timeout: float) -> tuple[Settings, str]:
        asked.append(list(words))
        return real(words, timeout)

    monkeypatch.setattr(openssh, "ask_ssh", counting)
    return asked


def settled(*logins: Login) -> list[Settings]:
    settling = SharedSettings(logins)
    return [settling.settle(login, Deadline(10)) for login in logins]


def fleet(*options: str, hosts: tuple[str, ...] = HOSTS, **said: Any) -> list[Login]:
    return [Login(host=host, ssh_common_args=options, **said) for host in hosts]


def without_log_level(settings: Settings) -> dict[str, tuple[str, ...]]:
    return {name: values for name, values in settings.items() if name != "loglevel"}


def same_as_one_by_one(logins: list[Login]) -> bool:
    return [without_log_level(one) for one in settled(*logins)] == [
        without_log_level(settle(login, Deadline(10))) for login in logins
    ]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.mark.parametrize(
    "text",
    [
        "Host *\n  Port 2022\n  IdentityFile ~/.ssh/fleet\n",
        "# Host n1 and %h\nUser fleet\nHostKeyAlgorithms ssh-ed25519\n",
        "Include {folder}/common\n",
    ],
)
def test_ssh_g_runs_once_for_hosts_with_equal_settings(
    text: str, config: Path, questions: list[list[str]]
) -> None:
    (config.parent / "common").write_text("host *\n  User included\n")
    config.write_text(text.format(folder=config.parent))
    logins = fleet("-F", str(config))
    found = settled(*logins)
    assert len(questions) == 1
    assert [one["hostname"] for one in found] == [(host,) for host in HOSTS]
    assert same_as_one_by_one(logins)


@pytest.mark.parametrize(
    "text",
    [
        "Host n1\n  Port 2022\n",
        "host=n1\n  Port 2022\n",
        '"Host" n1\n  Port 2022\n',
        "\tHOST * !n1\n  Port 2022\n",
        "Match host n1\n  Port 2022\n",
        'Match exec "true"\n  Port 2022\n',
        "Host *\n  Include {folder}/common\n",
        "Host *\n  HostName %h.lan\n",
        "HostName gate\n",
        "IdentityFile ~/.ssh/%h\n",
        "CanonicalizeHostname yes\nCanonicalDomains invalid\n",
        "ProxyJump n1\n",
        "User fleetbuild-any-host\n",
    ],
)
def test_ssh_g_runs_for_each_host_if_hosts_may_differ(
    text: str, config: Path, questions: list[list[str]]
) -> None:
    (config.parent / "common").write_text("Host n1\n  User included\n")
    config.write_text(text.format(folder=config.parent))
    logins = fleet("-F", str(config), hosts=("n3", "n2", "10.0.0.3"))
    settled(*logins)
    assert len(questions) == 4  # one for all, in vain, and three
    assert same_as_one_by_one(logins)


@pytest.mark.parametrize(
    "options",
    [
        ("-o", "HostName=%h.lan"),
        ("-o", "HostName=gate"),
        ("-o", "IdentityFile=~/.ssh/%h"),
        ("-J", "gate"),
        ("-q",),  # tells nobody what it reads
    ],
)
def test_options_may_make_hosts_differ(
    options: tuple[str, ...], questions: list[list[str]]
) -> None:
    logins = fleet(*options)
    settled(*logins)
    assert [words[-1] for words in questions if words[-1] in HOSTS] == list(HOSTS)
    assert same_as_one_by_one(logins)


@pytest.mark.parametrize("host", ["N1", "10.1", "0x7f.1", "fd00::1", "user@n1", "[fd00::1]"])
def test_ssh_g_runs_for_a_name_that_openssh_may_rewrite(
    host: str, questions: list[list[str]]
) -> None:
    settled(*fleet(hosts=(host, host)))
    assert [words[-1] for words in questions] == [host, host]


def test_ssh_g_runs_once_for_one_node(questions: list[list[str]]) -> None:
    settled(*fleet(hosts=("n1",)), *fleet("-p", "23", hosts=("n2",)))
    assert [words[-1] for words in questions] == ["n1", "n2"]


def test_ssh_g_runs_for_each_host_of_another_ssh_program(questions: list[list[str]]) -> None:
    settled(*fleet(ssh_executable="/usr/bin/ssh"))
    assert [words[-1] for words in questions] == list(HOSTS)


def test_a_configuration_that_cannot_be_read_again_is_not_shared(
    config: Path, questions: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("User fleet\n")

    def forbidden(path: Path) -> bytes:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_bytes", forbidden)
    settled(*fleet("-F", str(config)))
    assert len(questions) == 1 + len(HOSTS)


def test_each_node_gets_the_reason_of_a_refused_configuration(config: Path) -> None:
    settling = SharedSettings(logins := fleet("-F", str(config)))
    for login in logins:
        with pytest.raises(NoAnswer, match="does not accept"):
            settling.settle(login, Deadline(10))
