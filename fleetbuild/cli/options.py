"""Options that several commands share, and groups of them that a command takes as one parameter.

A group is a dataclass whose fields are options. `expand` shows Typer a command with the options of
its groups in place of the groups: the fields give help texts, completion and types.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fleetbuild.cli.session import Session

if TYPE_CHECKING:
    from fleetbuild import RequirementList

InventoryArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="INVENTORY",
        help="An Ansible inventory: file, directory, script; default: the last plan's, else the"
        " one here, else this machine.",
    ),
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
Requirements = Annotated[
    list[Path] | None,
    typer.Option(
        "--requirement",
        "--requirements",
        "-r",
        metavar="FILE",
        help="A requirements.txt; can be repeated.",
    ),
]
Constraints = Annotated[
    list[Path] | None,
    typer.Option(
        "--constraint", metavar="FILE", help="A constraints.txt, as pip's -c; can be repeated."
    ),
]
Lock = Annotated[
    Path | None,
    typer.Option("--lock", metavar="FILE", help="Take the versions of a uv.lock or pylock.toml."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="NAME",
        help="A dependency group of --lock, else of pyproject.toml here; can be repeated.",
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
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--for",
        metavar="KIND",
        help="Judge for a CPU (zen3, 'Xeon E5-2650 v2'), a rung (avx2), a GPU (sm61, 'RTX 3060')"
        " or a group (sm61-avx2-cp311); can be repeated.",
    ),
]
Emulate = Annotated[
    bool,
    typer.Option(
        "--emulate",
        help="Also import and use each package on the CPU of each kind, by QEMU, in a sandbox.",
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
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more detail.")]
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
Detailed = Annotated[
    bool,
    typer.Option(
        "--detailed-exitcode",
        help="Exit with 10 if there is something to do and nothing worse to report.",
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
        help="The deadline of each node's probe; in later steps a node is given up that does not"
        " answer a new connection for as long, or is silent for twice as long; default: the"
        " plan's, else 30.",
    ),
]
Forks = Annotated[
    int | None,
    typer.Option("--forks", "-f", min=1, metavar="N", help="Nodes asked at once; default: 64."),
]

STATE_DIR = Path(".fleetbuild")


class OptionGroup:
    """Options that belong together: each field is an option of the commands that take the group."""


@dataclass(frozen=True, kw_only=True)
class OutputOptions(OptionGroup):
    """Where a command's state is, and how it shows what it does."""

    json: Json = False
    verbose: Verbose = False
    no_color: NoColor = False
    state_dir: StateDir = STATE_DIR

    def session(self, *, events: bool = False) -> Session:
        """Return the session of a command with these options; see Session for `events`."""
        return Session(
            state_dir=self.state_dir,
            json=self.json,
            verbose=self.verbose,
            no_color=self.no_color,
            events=events,
        )

    def refuse_format(self, format: str) -> None:  # noqa: A002 (the option's name)
        """Refuse --json together with a --format for people or other programs."""
        if self.json and format != "table":
            from fleetbuild import UsageError

            raise UsageError(f"--json does not go with --format {format}.", "Leave out one.")


@dataclass(frozen=True, kw_only=True)
class PackageOptions(OptionGroup):
    """Packages to plan for, files that list them, and kinds of machines in place of nodes."""

    package: Packages = None
    requirement: Requirements = None
    constraint: Constraints = None
    lock: Lock = None
    group: Groups = None
    target: Targets = None

    def listed(self) -> RequirementList:
        """Return the packages and bounds in the files that the options name."""
        from fleetbuild import read_requirement_files

        return read_requirement_files(
            requirements=self.requirement or (),
            constraints=self.constraint or (),
            lock=self.lock,
            groups=self.group or (),
            has_packages=bool(self.package),
        )


@dataclass(frozen=True, kw_only=True)
class NodeOptions(OptionGroup):
    """Which nodes of the inventory are reached, and how."""

    limit: Limit = None
    config: Config = None
    timeout: Timeout = None
    forks: Forks = None
    ask_pass: AskPass = False
    ask_become_pass: AskBecomePass = False
    become_password_file: BecomePasswordFile = None
    vault_password_file: VaultFiles = None
    vault_id: VaultIds = None


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(OptionGroup):
    """Which cluster is asked."""

    kubeconfig: Kubeconfig = None
    context: Context = None


def expand(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters are the function's, with each group as its options."""
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        group: Any = parameter.annotation
        if isinstance(group, type) and issubclass(group, OptionGroup):
            groups[parameter.name] = group
            parameters += _options_of(group)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            options = {field.name: values.pop(field.name) for field in fields(group)}
            values[name] = group(**options)
        function(**values)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=types[field.name],
        )
        for field in fields(group)
    ]
