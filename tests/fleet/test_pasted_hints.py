"""What messages propose is pasted on real nodes: each command runs as it was printed.

The fleet needs much to be repeated: an encrypted inventory in a folder with a space, its own
known_hosts, a limit, a configuration, a state directory, and a list of requirements. Commands that
look at a plan, the store or a release are pasted on this machine.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pexpect  # type: ignore[import-untyped]  # ansible-runner brings it
import pytest
import yaml

from fleetbuild.cli.hints import commands
from tests.factories.files import make_wheel
from tests.fleet.conftest import MakeLab

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}
APPS = "/home/fleet/apps"
OPTIONS = "--vault-password-file 'the password' --state-dir 'its state'"
PLAN = f"fleetbuild plan 'my fleet' -l one:two -r 'my list.txt' --config 'its config.yml' {OPTIONS}"


@dataclass
class Shell:
    """A shell in the fleet's folder, and what the last command printed."""

    folder: Path
    lab: Any = None
    said: str = ""
    told: list[str] = field(default_factory=list)

    def run(self, command: str, code: int = 0) -> None:
        """Run a command as it stands; it must end with this exit code."""
        self.told.append(command)
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        assert done.returncode == code, "\n".join((*self.told, self.said))

    def printed(self, name: str) -> str:
        """Return the one printed command that begins so."""
        advice = re.sub("^error: .*", "", self.said, flags=re.MULTILINE)
        printed = {advice[found.start : found.end] for found in commands(advice)}
        (command,) = [each for each in printed if each.startswith(f"fleetbuild {name}")]
        return command

    def paste(self, name: str, code: int = 0, put: tuple[str, str] = ("", "")) -> None:
        """Run the one printed command that begins so, with a word put in place of its capitals."""
        self.run(self.printed(name).replace(*put), code)

    def wait_until_free(self, free: Callable[[], object]) -> None:
        """Paste apply with --wait, as its hint says, and free the node once it waits."""
        words = ["bash", "-c", f"exec {self.printed('apply')} --wait 2>&1"]
        with subprocess.Popen(
            words, cwd=self.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
        ) as apply:
            told = iter(apply.stdout or ())
            assert any("Waiting for it to end." in line for line in told)
            free()
            self.said = "".join(told)
        assert apply.returncode == 0, self.said

    def connect_once(self) -> None:
        """Paste each ssh command in turn, and answer it as someone who knows the fingerprint."""
        printed = dict.fromkeys(re.findall(r"connect once with `(ssh [^`]*)`", self.said))
        assert len(printed) == 2, self.said
        for command in printed:
            ssh = pexpect.spawn("bash", ["-c", command], cwd=self.folder, env=ENVIRONMENT)
            for question, answer in (("fingerprint]", "yes"), ("Permanently added", "exit")):
                ssh.expect(question)
                ssh.sendline(answer)
            ssh.expect(pexpect.EOF)
            ssh.close()
            assert ssh.exitstatus == 0, command

    def hold(self, node: str) -> None:
        """Let the run of another controller, which has died, hold a node's releases."""
        code = (
            "import json, time; boot = open('/proc/sys/kernel/random/boot_id').read().strip();"
            " json.dump({'counter': 7, 'controller': 'other', 'seconds': 1800,"
            f" 'boot': boot, 'until': time.monotonic() + 600}}, open('{APPS}/.lease', 'w'))"
        )
        self.lab.exec(node, f'/usr/bin/python3 -c "{code}"', user="fleet", check=True)

    def want(self, version: str) -> None:
        (self.folder / "my list.txt").write_text(f"tiny=={version}\n")

    def serves(self, *versions: str) -> None:
        code = f"{APPS}/current/bin/python -c 'import tiny; print(tiny.version)'"
        found = [self.lab.exec(node, code, user="fleet").stdout.strip() for node in ("one", "two")]
        assert found == list(versions)


@pytest.fixture
def shell(make_lab: MakeLab, tmp_path: Path) -> Shell:
    lab = make_lab({"nodes": {name: {"hardware": "avx2"} for name in ("one", "two")}})
    inventory = tmp_path / "my fleet"
    (inventory / "group_vars").mkdir(parents=True)
    variables = {
        "ansible_user": "{{ the_user }}",
        "ansible_ssh_private_key_file": str(lab.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={tmp_path}/known_hosts",
        "ansible_python_interpreter": "/usr/bin/python3",
    }
    hosts = {name: {"ansible_host": node.address} for name, node in lab.nodes.items()}
    document = {"all": {"vars": variables, "hosts": {**hosts, "three": {}}}}
    (inventory / "hosts.yml").write_text(yaml.safe_dump(document))
    (tmp_path / "the password").write_text("open")
    config = {"index": ["wheels"], "build": {"policy": "published"}, "install": {"path": APPS},
              "rollout": {"canary": 0, "serial": 2}}  # fmt: skip
    (tmp_path / "its config.yml").write_text(yaml.safe_dump(config))
    for version in ("1.0", "2.0"):
        code = f"version = {version!r}\n".encode()
        make_wheel(tmp_path / "wheels", "tiny", version, files={"tiny.py": code})
    made = Shell(tmp_path, lab)
    made.want("1.0")
    (inventory / "group_vars/all.yml").write_text("the_user: fleet\n")
    made.run("ansible-vault encrypt --vault-password-file 'the password' my*/group_vars/all.yml")
    return made


def test_a_fleets_story_told_by_pasting(shell: Shell) -> None:
    shell.run(PLAN, 3)
    shell.connect_once()
    shell.run(f"{PLAN} --out 'early plan.json'")
    shell.paste("apply")
    shell.serves("1.0", "1.0")

    shell.paste("status")
    shell.lab.exec("one", f"rm {APPS}/current/bin/python", check=True)
    shell.run("fleetbuild verify --state-dir 'its state'", 7)
    shell.paste("verify")
    assert "1 of 2 nodes installed, 1 verified." in shell.said
    shell.run("fleetbuild verify --state-dir 'its state'")

    shell.want("2.0")
    shell.lab.exec("one", f"rm {APPS}/current", check=True)
    shell.run(f"fleetbuild status 'my fleet' -l one:two {OPTIONS}")
    shell.paste("plan")
    shell.lab.exec("two", f"chmod a-w {APPS}/releases", check=True)
    shell.paste("apply", 6)
    shell.lab.exec("two", f"chmod u+w {APPS}/releases", check=True)
    shell.hold("two")
    shell.paste("apply", 6)
    (remove,) = re.findall(r"at once with: (rm \S+)", shell.said)
    shell.wait_until_free(lambda: shell.lab.exec("two", remove, user="fleet", check=True))
    shell.serves("2.0", "2.0")

    shell.run(f"fleetbuild apply 'early plan.json' {OPTIONS}", 9)
    shell.paste("plan")
    assert "Nothing to do." in shell.said
    shell.run("fleetbuild rollback --state-dir 'its state'", 2)
    shell.serves("2.0", "2.0")
    shell.paste("rollback")
    shell.serves("1.0", "1.0")


OWN = "--state-dir 'its state'"
HERE = f"'my fleet/inventory.yml' {OWN}"


def test_this_machines_story_told_by_pasting(tmp_path: Path) -> None:
    shell, wheels = Shell(tmp_path), tmp_path / "wheels"
    for name, file in (("tiny", "tiny"), ("ipykernel", "ipykernel/a"), ("odd", "sitecustomize")):
        make_wheel(wheels, name, files={f"{file}.py": b""})

    def want(*packages: str) -> None:
        config = {"index": [str(wheels)], "build": {"policy": "published"},
                  "install": {"path": str(tmp_path / "apps")}, "packages": packages}  # fmt: skip
        for folder in (tmp_path, tmp_path / "my fleet"):
            (folder / "fleetbuild.yml").write_text(json.dumps(config))

    shell.run(f"fleetbuild doctor {OWN}")
    shell.paste("init")
    shell.run(f"fleetbuild init {OWN}", 2)
    shell.paste("init", put=("DIR", "'my fleet'"))
    want("tiny==1.0")
    shell.paste("plan")
    shell.run(f"fleetbuild explain {OWN}", 2)
    shell.paste("explain", put=("NODE", "this-machine"))
    shell.run(f"fleetbuild env {OWN}", 4)
    shell.paste("apply", 2, put=("NAME==VERSION", "tiny==1.0"))
    shell.paste("apply")
    shell.run(f"fleetbuild run {OWN}", 2)
    shell.paste("run", put=("COMMAND", "python -c 'import tiny'"))
    shell.run(f"fleetbuild env --install it {OWN}", 2)
    (line,) = re.findall('eval ".*"', shell.said)
    shell.run(f"{line} && python -c 'import tiny'")

    shell.run(f"fleetbuild plan {HERE} --facts captures", 2)
    shell.paste("facts", put=("DIR", "captures"))
    shell.run(f"fleetbuild plan {HERE} --facts captures")
    shell.run(f"fleetbuild revoke {OWN}", 2)
    shell.paste("revoke --list")
    shell.run(f"fleetbuild revoke tiny==1.0 {OWN} --reason bad")
    shell.paste("plan", 4)
    shell.run(f"fleetbuild emit nix {OWN}", 4)
    shell.paste("plan", 4)
    shell.paste("revoke --undo", put=("WHAT", "tiny==1.0"))
    shell.paste("plan")
    assert "1 node from captures" in shell.said

    shell.run(f"fleetbuild env --format jupyter {OWN}", 2)
    want("tiny==1.0", "ipykernel==1.0")
    shell.paste("apply", 2)
    shell.paste("apply")
    shell.run(f"fleetbuild env --format jupyter {OWN}")
    for wheel in (tmp_path / "its state/store").rglob("tiny*.whl"):
        wheel.write_bytes(b"damaged")
    shell.run(f"fleetbuild store check {OWN}", 7)
    shell.paste("plan")
    shell.run(f"fleetbuild store check {OWN}")

    want("odd==1.0")
    shell.run(f"fleetbuild apply {HERE} --yes", 7)
    shell.paste("audit", 7, put=("WHEEL", "wheels/odd-1.0-py3-none-any.whl"))
    shell.run(f"fleetbuild check {OWN}", 2)
    shell.paste("check", put=("numpy", "six"))
    (tmp_path / "gone.yml").write_text("all: {hosts: {gone: {ansible_port: 1}}}\n")
    shell.run(f"fleetbuild check tiny gone.yml {OWN}", 4)
    shell.paste("facts", 3)
    shell.run(f"fleetbuild remove {HERE} --dry-run", 2)
    shell.paste("remove", 2)
    shell.paste("remove 'my fleet")
    shell.run(f"fleetbuild run {OWN} -- true", 4)
