"""AES comes first where both CPUs compute it, unless the user's own files choose ciphers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetbuild.ansible import alive
from fleetbuild.models import Facts, Login
from fleetbuild.probe.transport import ciphers
from fleetbuild.probe.transport.openssh import ask_ssh

AES = Facts(arch="x86_64", features=("aes", "avx"))
HERE = Login(host="n1")


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A controller whose CPU has AES, and whose ssh reads one empty file."""
    cpu = tmp_path / "cpuinfo"
    cpu.write_text("processor\t: 0\nflags\t\t: fpu aes avx\n")
    monkeypatch.setattr(ciphers, "_CPU", cpu)
    chosen(tmp_path, monkeypatch, "")
    yield
    ciphers._reordered.cache_clear()


def chosen(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Have ssh read this configuration, and ask it again."""
    (folder / "config").write_text(text)
    program = folder / "bin" / "ssh"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {folder}/config "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    ciphers._reordered.cache_clear()


def test_all_ciphers_stay_and_the_quick_one_is_first() -> None:
    order = ciphers.quick_ciphers(HERE, AES)
    assert order.startswith("aes128-gcm@openssh.com,")
    usual = ask_ssh(["ssh", "-F", "none", "-G", "--", "localhost"], 10)[0]["ciphers"][0]
    assert sorted(order.split(",")) == sorted(usual.split(","))
    told = ask_ssh(["ssh", "-F", "none", "-G", "-o", f"Ciphers={order}", "--", "n1"], 10)[0]
    assert told["ciphers"] == (order,)


def test_a_cpu_without_aes_keeps_the_order(tmp_path: Path) -> None:
    assert ciphers.quick_ciphers(HERE, Facts(arch="x86_64", features=("avx", "vaes"))) == ""
    (tmp_path / "cpuinfo").write_text("flags\t\t: fpu avx\n")
    assert ciphers.quick_ciphers(HERE, AES) == ""


@pytest.mark.parametrize(
    "text", ["Ciphers aes256-ctr\n", "Host n9\n  ciphers=^aes256-ctr\n", "Include {folder}/more\n"]
)
def test_ciphers_in_a_configuration_file_stay(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more").write_text("  CIPHERS aes256-ctr\n")
    chosen(tmp_path, monkeypatch, text.format(folder=tmp_path))
    assert ciphers.quick_ciphers(HERE, AES) == ""


def test_a_host_block_without_ciphers_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(tmp_path, monkeypatch, "# Ciphers aes256-ctr\nHost n9\n  User fleet\n")
    assert ciphers.quick_ciphers(HERE, AES)


@pytest.mark.parametrize(
    "login",
    [
        Login(host="n1", ssh_common_args=("-F", "other")),
        Login(host="n1", ssh_args=("-Fother",)),
        Login(host="n1", ssh_args=("-4F", "other")),
        Login(host="n1", ssh_executable="/opt/ssh"),
        Login(host="n1", connection="local"),
    ],
)
def test_another_way_to_the_node_keeps_its_own(login: Login) -> None:
    assert ciphers.quick_ciphers(login, AES) == ""


@pytest.mark.parametrize("word", ["-oForwardAgent=no", "-iF", "-lFleet", "--", "-4"])
def test_an_option_with_that_letter_in_its_value_names_no_file(word: str) -> None:
    assert not alive.names_configuration([word])
