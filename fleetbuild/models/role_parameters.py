"""The parameters of an install, a verification and a rollback, each declared once.

A run fills in a spec and passes it to a playbook. From the same classes `make docs` writes the
roles' argument specs and defaults, the modules' options, the variables that playbooks pass on, and
the tables in the documentation (docs/generate_roles.py). Those of a build are in
build_parameters.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fleetbuild.models._base import Frozen


@dataclass(frozen=True)
class Parameter:
    """A parameter's meaning, and how the playbook passes it to the module."""

    meaning: str
    role: bool = True  # False: only the playbook reads it
    module: bool = False  # True: an option of the role's module too
    path: bool = False  # the module expands ~ in it
    computed: Any = None  # the role's default, if it is an expression
    passed: str = ""  # what the role's task passes on, if it is not the variable as it is
    identifies: str | None = None  # the filters through which it goes into a build's default key
    module_default: Any = None  # the module's default, if it must have one and the spec has none


class InstalledWheel(Frozen):
    """A wheel of a release."""

    path: Annotated[str, Parameter("Its path on the controller, which ends with the file's name.")]
    file: Annotated[str, Parameter("The file's name.")]
    sha256: Annotated[str, Parameter("Its hash.")]
    commands: Annotated[
        tuple[str, ...],
        Parameter(
            "The names that it adds to bin/. If all wheels say so, an install that adds another or"
            " changes one of Python's ends."
        ),
    ] = ()


class ReleaseSpec(Frozen):
    """The root and name of a release on a node."""

    path: Annotated[
        str,
        Parameter("Where releases live on the node. Root is used only if the user cannot write."),
    ] = "/opt/fleetbuild"
    release: Annotated[
        str,
        Parameter(
            'The release\'s name. Each name but "default" gets its own folder; current, history,'
            " releases and wheels are reserved."
        ),
    ] = "default"


_REVOKED = Parameter(
    "For a rollback: revoked wheels, by sha256 or as name==version. It passes over releases that"
    " hold one.",
    module=True,
)


_IN_USE = Parameter(
    "Old releases that have to stay, each with the reason, such as the pod that mounts it. The node"
    " adds the releases that it sees mounted or in use.",
    module=True,
)


class ChangedRelease(ReleaseSpec):
    """A release that is changed on a node, and who changes it."""

    controller: Annotated[
        str,
        Parameter(
            "Who changes the node, for messages to others. While a run changes the releases of a"
            " node, runs of other controllers are refused there.",
            module=True,
        ),
    ] = ""


class RollbackSpec(ChangedRelease):
    """The release to leave on a node: an entry of `fleetbuild_rollbacks`."""

    revoked: Annotated[tuple[str, ...], _REVOKED] = ()


class RemoveSpec(ChangedRelease):
    """The releases to remove from a node: an entry of `fleetbuild_removals`."""

    in_use: Annotated[dict[str, str], _IN_USE] = {}


class VerifySpec(ReleaseSpec):
    """A release to verify on a node: an entry of `fleetbuild_verifies`."""

    release_id: Annotated[str, Parameter("The release to verify. Empty for the current one.")] = ""
    imports: Annotated[tuple[str, ...], Parameter("Modules to import.", module=True)] = ()
    checks: Annotated[
        tuple[str, ...],
        Parameter("Python snippets that must run without an exception.", module=True),
    ] = ()
    timeout: Annotated[
        int, Parameter("Seconds for all imports and checks together.", module=True)
    ] = 300
    features: Annotated[
        tuple[str, ...],
        Parameter(
            "CPU features that the release's code may use, as /proc/cpuinfo spells them."
            " C(bin/fleetbuild-sanity) looks for them.",
            module=True,
        ),
    ] = ()
    files: Annotated[
        bool,
        Parameter(
            "Whether to read every file first and compare it with the record of the install.",
            module=True,
        ),
    ] = True


class ReleaseContents(ChangedRelease):
    """The parts of a release."""

    plan: Annotated[
        str,
        Parameter("The plan that the release comes from, for messages.", module=True),
    ] = ""
    space: Annotated[
        int,
        Parameter(
            "Bytes that the release needs while it is made: copied wheels, their unpacked files"
            " and the environment. With less on the disk, nothing is copied.",
            module=True,
        ),
    ] = 0
    lease: Annotated[
        int,
        Parameter(
            "Seconds after each step for which runs of other controllers are refused. The copy of"
            " all wheels is one step. At most a day.",
            module=True,
        ),
    ] = 1800

    release_id: Annotated[
        str,
        Parameter(
            "Names the release's folder. By default a hash over the wheels and the interpreter.",
            computed="{{ ((install_wheel_wheels | map(attribute='sha256') | sort | list)"
            " + [install_wheel_python]) | join('\\n') | hash('sha256') | truncate(16, true, '') }}",
        ),
    ]
    keep: Annotated[
        int,
        Parameter(
            "How many releases stay on the node. The current and the previous release always"
            " stay, and so does a release that is mounted or in use.",
            module=True,
        ),
    ] = 2
    in_use: Annotated[dict[str, str], _IN_USE] = {}
    wheels: Annotated[
        tuple[InstalledWheel, ...],
        Parameter("All wheels to install, dependencies included: no index is used.", module=True),
    ] = ()
    uv: Annotated[
        dict[str, str],
        Parameter(
            "The program uv for this node: C(path) on the controller, C(file) and C(sha256). It is"
            " kept beside the releases and installs the wheels. Without it, or where the node does"
            " not run it, pip does.",
            module=True,
        ),
    ] = {}
    python: Annotated[
        str,
        Parameter(
            "The interpreter that the release is made with, on the node.", module=True, path=True
        ),
    ] = "/usr/bin/python3"
    manifest: Annotated[
        dict[str, Any],
        Parameter(
            "The content of manifest.json in the release.",
            module=True,
            computed={
                "format_version": 1,
                "release": "{{ install_wheel_release }}",
                "id": "{{ install_wheel_release_id }}",
                "group": "by-hand",
                "python": "{{ install_wheel_python }}",
                "wheels": [],
                "dependencies": [],
                "verified": False,
            },
            module_default={},
        ),
    ]

    statement: Annotated[
        dict[str, Any],
        Parameter(
            "The signed statement about the release: C(root), C(manifest) without the values of one"
            " node, C(wheels) (hashes by file name), C(plan), C(counter), and if wanted C(machine),"
            " C(features) and C(sms) that it is for, and C(valid_until), in seconds since 1970."
            " Needed by nodes with a file C(/etc/fleetbuild/allowed_signers).",
            module=True,
        ),
    ] = {}
    signature: Annotated[
        str,
        Parameter(
            "The signature by C(ssh-keygen -Y sign -n release@fleetbuild.dev) of the statement, as"
            " JSON with sorted keys and without spaces.",
            module=True,
        ),
    ] = ""


class InstallSpec(ReleaseContents, VerifySpec):
    """A release to install, verify and switch to: an entry of `fleetbuild_installs`."""


class InstallRole(ReleaseContents):
    """The variables of the role install_wheel."""

    activate: Annotated[
        bool,
        Parameter("Switch to the release at the end.", module=True, module_default=False),
    ] = True
    verify: Annotated[
        dict[str, Any],
        Parameter(
            "How to verify the release before the switch: C(imports), C(checks), C(timeout) and"
            " C(features) as in the role verify_wheel. Empty to leave it out.",
            module=True,
        ),
    ] = {}
    revoked: Annotated[tuple[str, ...], _REVOKED] = ()


def parameters(spec: type[Frozen], *, module: bool = False) -> dict[str, Parameter]:
    """Return a spec's parameters by name; with `module` only the options of its module."""
    found = {
        name: next(each for each in info.metadata if isinstance(each, Parameter))
        for name, info in spec.model_fields.items()
    }
    return {name: each for name, each in found.items() if each.module or not module}
