"""A build that tries to leave its folder, on nodes that isolate builds and on one that cannot."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import fleetbuild
from fleetbuild.ansible import Playbooks, TaskEvent
from fleetbuild.files import sha256_of
from tests.lab import Lab

SOURCE = Path(__file__).parent / "intruder"
KEY = "0123456789abcdef0123456789abcdef"
OF_LOGIN, OF_ROOT = "/home/fleet/.cache/fleetbuild", "/var/cache/fleetbuild"
# Where a login user's build is not isolated, all of this is open to it.
OPEN = {
    "network", "another build", "another build's status", "another package's cache", "a home",
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(make_lab: Callable[[Mapping[str, Any]], Lab]) -> Lab:
    return make_lab(
        {
            "nodes": {
                "login": {},
                "become": {"vars": {"ansible_become": True}},
                "open": {"namespaces": False},
                "open-become": {"namespaces": False, "vars": {"ansible_become": True}},
            }
        }
    )


@pytest.fixture
def listener(lab: Lab) -> Iterator[socket.socket]:
    """A port of this machine that the lab's nodes reach."""
    with socket.create_server((lab.nodes["login"].gateway, 0)) as server:
        server.settimeout(0.1)
        yield server


@pytest.fixture
def build(
    lab: Lab, listener: socket.socket, tmp_path: Path
) -> Callable[..., tuple[dict[str, Any], str]]:
    """Build the intruder on a node; return the role's result and the build's log."""

    def run(node: str, isolation: str = "preferred") -> tuple[dict[str, Any], str]:
        workspace = OF_ROOT if "become" in node else OF_LOGIN
        lab.exec(
            node,
            f"""set -e
            for folder in builds/another/work builds/another/out ccache/namespaces/another; do
              mkdir -p {workspace}/$folder
            done
            echo secret > {workspace}/builds/another/work/secret
            echo '{{"state": "done"}}' > {workspace}/builds/another/status.json
            echo > {workspace}/ccache/namespaces/another/object
            echo > /home/fleet/.profile
            [ {workspace} = {OF_ROOT} ] || chown -R fleet: /home/fleet""",
            check=True,
        )
        address, port = listener.getsockname()
        source = shutil.make_archive(
            str(tmp_path / "intruder"), "gztar", SOURCE.parent, SOURCE.name
        )
        wheel = {
            "package": "intruder",
            "wheel_version": "1.0+cpu.x8664",
            "key": KEY,
            "source": source,
            "source_sha256": sha256_of(Path(source)),
            "requirements": [],
            "environment": {
                "LISTENER": address,
                "PORT": str(port),
                "BUILDS": f"{workspace}/builds",
                "CACHES": f"{workspace}/ccache",
                "KEY": KEY,
                "INPUT": "/inputs/intruder.tar.gz",
            },
            "isolation": isolation,
            "dest": str(tmp_path / "out"),
        }
        facts: dict[str, Any] = {}
        failures: list[str] = []

        def listen(event: TaskEvent) -> None:
            facts.update(event.result.get("ansible_facts") or {})
            if event.state == "failed":
                failures.append(event.message)

        Playbooks(inventory=str(lab.inventory), state_dir=tmp_path).run(
            "build.yml",
            limit=[node],
            extravars={"fleetbuild_builds": {node: [wheel]}},
            on_event=listen,
        )
        assert "build_wheel_result" in facts, failures
        log = tmp_path / "out/build.log"
        return facts["build_wheel_result"], log.read_text() if log.exists() else ""

    return run


def reached(log: str) -> set[str]:
    assert "refused: " in log, log[-3000:]
    return set(re.findall(r"^\s*reached: (.+)$", log, re.M))


def connections(listener: socket.socket) -> int:
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return 0
    return 1


@pytest.mark.parametrize("node", ["login", "become"])
def test_an_isolated_build_reaches_nothing_but_its_folder(
    lab: Lab, build: Callable[..., Any], listener: socket.socket, node: str
) -> None:
    result, log = build(node, "required")
    assert result["ok"], f"{result['reason']}\n{log[-3000:]}"
    assert result["isolation"] == "namespaces"
    assert reached(log) == set()
    assert connections(listener) == 0
    user = "fleetbuild-build" if node == "become" else "fleet"
    wanted = lab.exec(node, f"id -u {user}", check=True).stdout.strip()
    assert f"user: {wanted}\n" in log
    workspace = OF_ROOT if node == "become" else OF_LOGIN
    # The caches of two packages are apart, and the status is not the one that the build wrote.
    assert lab.exec(node, f"ls {workspace}/ccache/namespaces/intruder").returncode == 0
    status = json.loads(
        lab.exec(node, f"cat {workspace}/builds/{KEY}/status.json", check=True).stdout
    )
    assert (status["sha256"], status["isolation"]) == (result["sha256"], "namespaces")


def test_a_node_without_namespaces_builds_unprivileged_at_least(
    build: Callable[..., Any], listener: socket.socket
) -> None:
    result, log = build("open")
    assert result["ok"], log[-3000:]
    assert result["isolation"] == "none"
    # Without isolation, the same program reaches all this, but neither sudo nor /root.
    assert reached(log) == OPEN
    assert connections(listener) == 1
    result, log = build("open-become")
    assert result["ok"], log[-3000:]
    assert result["isolation"] == "user"
    assert reached(log) <= {"network", "another build", "a home"}
    assert "user: 0\n" not in log


def test_a_build_that_must_be_isolated_does_not_start_elsewhere(build: Callable[..., Any]) -> None:
    result, log = build("open", "required")
    assert not result["ok"]
    assert "says: This build must be isolated (build.isolation: required)" in result["reason"]
    assert "ansible_become" in result["fix"]
    assert "user:" not in log


def test_the_probe_tells_which_nodes_can_isolate_builds(lab: Lab, tmp_path: Path) -> None:
    facts = fleetbuild.Fleet(lab.inventory, state_dir=tmp_path).probe()
    told = {name: each.can_isolate for name, each in facts.items()}
    assert told == {"login": True, "become": True, "open": False, "open-become": False}
