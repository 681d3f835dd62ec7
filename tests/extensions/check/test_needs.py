"""Reading a wheel for a verdict."""

import signal

import pytest

from fleetbuild.audit import limited_process
from fleetbuild.extensions.check.needs import needs_here, read_needs
from tests.factories.elf import make_elf
from tests.factories.files import demo_wheel

VADDPS_YMM = bytes.fromhex("c5f458c2c3")


def test_both_processes_find_the_same(tmp_path):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(VADDPS_YMM)})
    here = needs_here(wheel)
    assert read_needs(wheel) == here
    assert here.files[0].default == {"avx"}


def test_an_interrupted_process_says_nothing_about_the_wheel(tmp_path, monkeypatch):
    wheel = demo_wheel(tmp_path, files={"demo/a.so": make_elf(b"\xc3")})
    limited_process._end_all()
    ended = f"import os, signal; signal.signal({signal.SIGINT:d}, signal.SIG_DFL)"
    ended += f"; os.kill(os.getpid(), {signal.SIGINT:d})"
    monkeypatch.setattr(limited_process, "_COMMAND", f"{ended}; {limited_process._COMMAND}")
    with pytest.raises(KeyboardInterrupt):
        read_needs(wheel)
