"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Source = Annotated[
    str,
    typer.Argument(metavar="INVENTORY", help="An Ansible inventory: file, directory, script."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="fleetbuild.yml, if not beside the inventory."
    ),
]
Packages = Annotated[
    list[str] | None,
    typer.Option(
        "--package", "-p", metavar="SPEC", help="A package, as name==version; can be repeated."
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME",
        help="Plan for this kind of machine, such as sm89-avx2-cp311, in place of the nodes, which"
        " only build; can be repeated.",
    ),
]
Limit = Annotated[
    str | None,
    typer.Option(
        "--limit",
        "-l",
        metavar="PATTERN",
        help="Only hosts that match this Ansible pattern, or that @FILE names.",
    ),
]
Captures = Annotated[
    Path | None,
    typer.Option(
        "--facts", metavar="DIR", help="Read captures from this folder instead of probing nodes."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show more detail, and the tracebacks of errors.")
]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colors (as with NO_COLOR).")]
StateDir = Annotated[
    Path,
    typer.Option(
        "--state-dir",
        metavar="DIR",
        envvar="FLEETBUILD_STATE_DIR",
        help="Folder for plans, wheels and logs.",
    ),
]
AskPass = Annotated[bool, typer.Option("--ask-pass", "-k", help="Ask for the SSH password.")]
AskBecomePass = Annotated[
    bool, typer.Option("--ask-become-pass", "-K", help="Ask for the become password.")
]
BecomePasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--become-password-file",
        "--become-pass-file",
        metavar="FILE",
        help="A file with the become password, or a program that prints it, as in Ansible.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before nodes are changed.")]
VaultFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--vault-password-file",
        metavar="FILE",
        help="A file with a vault password, or a program that prints it, as in Ansible; can be"
        " repeated.",
    ),
]
VaultIds = Annotated[
    list[str] | None,
    typer.Option(
        "--vault-id",
        metavar="ID",
        help="A vault id and its password file, as in Ansible: LABEL@FILE or LABEL@prompt; can be"
        " repeated.",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="The kubeconfig; default: as kubectl finds it."
    ),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="The kubeconfig's context; default: current."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=1,
        max=86400,
        metavar="SECONDS",
        help="The deadline of each node's probe; in later steps a node that does not answer for"
        " twice as long is given up; default: 30.",
    ),
]
Forks = Annotated[
    int | None,
    typer.Option("--forks", "-f", min=1, metavar="N", help="Nodes asked at once; default: 64."),
]

STATE_DIR = Path(".fleetbuild")
