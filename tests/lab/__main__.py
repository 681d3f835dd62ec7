"""python -m tests.lab up|down|status|ssh"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import yaml

from tests.lab.fleet import FLEETS
from tests.lab.lab import FOLDER, Lab, labs
from tests.lab.podman import LabError


def main() -> int:
    arguments = _parser().parse_args()
    try:
        code: int = arguments.do(arguments)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start a lab, or its stopped nodes")
    up.add_argument(
        "--fleet",
        metavar="FILE.yml",
        help="a fleet file; - reads standard input; fleets/NAME.yml where it is there",
    )
    up.set_defaults(do=_up)
    down = commands.add_parser("down", help="remove a lab")
    down.add_argument("--all", action="store_true", help="every lab of this checkout")
    down.set_defaults(do=_down)
    status = commands.add_parser("status", help="the labs and their nodes")
    status.set_defaults(do=_status)
    ssh = commands.add_parser("ssh", help="a shell, or a command, on a node")
    ssh.set_defaults(do=_ssh)
    for command in (up, down, ssh):
        command.add_argument("--name", default="default", help="the lab's name (default)")
    ssh.add_argument("node")
    ssh.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _say(line: str) -> None:
    print(f"lab: {line}", file=sys.stderr, flush=True)


def _up(arguments: argparse.Namespace) -> int:
    known = FLEETS / f"{arguments.name}.yml"
    fleet = known if known.is_file() else None
    if arguments.fleet == "-":
        fleet = yaml.safe_load(sys.stdin)
    elif arguments.fleet:
        fleet = Path(arguments.fleet)
    lab = Lab(arguments.name, fleet, say=_say).up()
    for node in lab.nodes.values():
        print(f"{node.name:<20} {node.address:<16} {node.capture.name if node.capture else '-'}")
    print(f"inventory: {lab.inventory}")
    return 0


def _down(arguments: argparse.Namespace) -> int:
    for lab in labs() if arguments.all else [Lab(arguments.name)]:
        lab.down()
        _say(f"{lab.name} is gone")
    return 0


def _status(_: argparse.Namespace) -> int:
    if not labs():
        print(f"no lab under {FOLDER}")
    for lab in labs():
        running = lab.running()
        print(f"{lab.name}: {lab.inventory}")
        for node in lab.attach().nodes.values() if lab.inventory.exists() else ():
            print(
                f"  {node.name:<20} {node.address:<16} {'up' if node.name in running else 'down'}"
            )
    return 0


def _ssh(arguments: argparse.Namespace) -> int:
    lab = Lab(arguments.name).attach()
    if arguments.node not in lab.nodes:
        raise LabError(f"{lab.name} has no node {arguments.node}: {', '.join(lab.nodes)}")
    os.execvp("ssh", ["ssh", "-F", str(lab.ssh_config), arguments.node, *arguments.command])  # noqa: S606


if __name__ == "__main__":
    sys.exit(main())
