"""A controller that is a node too: its builds survive an interrupted run, as on other nodes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import fleetbuild
from tests.fleet.test_apply import source_tree

INVENTORY = "all: {hosts: {here: {ansible_connection: local}}}\n"


def test_a_build_on_this_machine_goes_on_after_an_interrupt(tmp_path: Path) -> None:
    word = f"begun {uuid.uuid4().hex}"  # so that no earlier test has built the same
    deaf = "import signal; [signal.signal(each, signal.SIG_IGN) for each in (1, 2, 3, 15)]"
    once = f'{deaf}; print("{word}", flush=True); time.sleep(12)'
    inventory, config = tmp_path / "inventory.yml", tmp_path / "fleetbuild.yml"
    inventory.write_text(INVENTORY)
    config.write_text(
        f"packages: ['here @ {source_tree(tmp_path / 'here', setup=once)}']\n"
        f"install: {{path: {tmp_path / 'opt'}}}\n"
    )
    fleet = fleetbuild.Fleet(inventory, state_dir=tmp_path / "state")
    plan = fleet.plan()
    fleet.save_plan(plan)
    command = [sys.executable, "-m", "fleetbuild", "apply", "--json", "--state-dir"]
    with subprocess.Popen(
        [*command, tmp_path / "state"], stdout=subprocess.PIPE, text=True, process_group=0
    ) as first:
        assert first.stdout
        for line in first.stdout:
            if word in line:
                os.killpg(first.pid, signal.SIGINT)  # as the terminal does
                break
        rest = first.stdout.read()
    assert first.returncode == 130, rest
    result = fleet.apply(plan)
    assert result.exit_code == 0, result
    workspace = Path("/var/cache" if os.geteuid() == 0 else Path.home() / ".cache", "fleetbuild")
    build = workspace / "builds" / str(result.wheels[0].artifact_key)
    assert (build / "build.log").read_text().count(word) == 1
    shutil.rmtree(build)
