"""The parameters of an install, a verification and a rollback, each declared once.

A run fills in a spec; playbook, role and module pass it on as it is. From the same classes
`make docs` writes the argument specs of roles and modules (docs/generate_roles.py). Those of a
build are in build_parameters.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fleetbuild.models._base import Frozen


@dataclass(frozen=True)
class Parameter:
    """A parameter's meaning."""

    meaning: str
    path: bool = False  # the module expands ~ in it
    computed: bool = False  # role or module know a value for users who name none


_SIZE = Parameter(
    "Its size in bytes. A file of another size is not read. 0 if it is unknown: then no file of"
    " more than 8 GiB is read."
)


class InstalledWheel(Frozen):
    """A wheel of a release."""

    path: Annotated[str, Parameter("Its path on the controller, which ends with the file's name.")]
    file: Annotated[str, Parameter("The file's name.")]
    sha256: Annotated[str, Parameter("Its hash.")]
    size: Annotated[int, _SIZE] = 0
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
        Parameter(
            "Where releases live on the node. Root is used only if the user cannot write.",
            path=True,
        ),
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
)


_WITHDRAW = Parameter(
    "For a rollback: remove C(current), so that no release serves. The releases stay."
)


_IN_USE = Parameter(
    "Old releases that have to stay, each with the reason, such as the pod that mounts it. The node"
    " adds the releases that it sees mounted or in use.",
)


class ChangedRelease(ReleaseSpec):
    """A release that is changed on a node, and who changes it."""

    controller: Annotated[
        str,
        Parameter(
            "Who changes the node, for messages to others. While a run changes the releases of a"
            " node, runs of other controllers are refused there.",
        ),
    ] = ""


class RollbackSpec(ChangedRelease):
    """The release to leave on a node: an entry of `fleetbuild_rollbacks`."""

    revoked: Annotated[tuple[str, ...], _REVOKED] = ()
    withdraw: Annotated[bool, _WITHDRAW] = False


class RemoveSpec(ChangedRelease):
    """The releases to remove from a node: an entry of `fleetbuild_removals`."""

    in_use: Annotated[dict[str, str], _IN_USE] = {}


class Verification(Frozen):
    """How a release is verified."""

    imports: Annotated[tuple[str, ...], Parameter("Modules to import.")] = ()
    checks: Annotated[
        tuple[str, ...], Parameter("Python snippets that must run without an exception.")
    ] = ()
    timeout: Annotated[int, Parameter("Seconds for all imports and checks together.")] = 300
    features: Annotated[
        tuple[str, ...],
        Parameter(
            "CPU features that the release's code may use, as /proc/cpuinfo spells them."
            " C(bin/fleetbuild-sanity) looks for them."
        ),
    ] = ()


class VerifySpec(ReleaseSpec, Verification):
    """A release to verify on a node: an entry of `fleetbuild_verifies`."""

    release_id: Annotated[str, Parameter("The release to verify. Empty for the current one.")] = ""
    files: Annotated[
        bool,
        Parameter(
            "Whether to read every file first and compare it with the record of the install."
        ),
    ] = True


class InstallSpec(ChangedRelease):
    """A release to install, verify and switch to: an entry of `fleetbuild_installs`."""

    plan: Annotated[
        str,
        Parameter("The plan that the release comes from, for messages."),
    ] = ""
    replaces: Annotated[
        str,
        Parameter("The release that served when the run looked; another one stays. Empty for any."),
    ] = ""
    space: Annotated[
        int,
        Parameter(
            "Bytes that the release needs while it is made: copied wheels, their unpacked files"
            " and the environment. Wheels that the node links instead are left out there. With less"
            " on the disk, nothing is copied.",
        ),
    ] = 0
    lease: Annotated[
        int,
        Parameter(
            "Seconds after each step for which runs of other controllers are refused. The copy of"
            " all wheels is one step. At most a day.",
        ),
    ] = 1800

    login_uid: Annotated[
        int,
        Parameter(
            "The uid of the user who logs in, if it is known that only root can write to the path:"
            " then the role asks as root at once. 0 if that is not known.",
        ),
    ] = 0

    release_id: Annotated[
        str,
        Parameter(
            "Names the release's folder. By default a hash over the wheels and the interpreter.",
            computed=True,
        ),
    ]
    keep: Annotated[
        int,
        Parameter(
            "How many releases stay on the node. The current and the previous release always"
            " stay, and so does a release that is mounted or in use.",
        ),
    ] = 2
    in_use: Annotated[dict[str, str], _IN_USE] = {}
    wheels: Annotated[
        tuple[InstalledWheel, ...],
        Parameter("All wheels to install, dependencies included: no index is used."),
    ] = ()
    installer: Annotated[
        dict[str, str | int],
        Parameter(
            "uv, which installs the wheels: C(path) on the controller, C(file), C(sha256) and"
            " C(size). The node keeps it beside the releases, and unpacks it if C(file) ends in"
            " C(.gz). Without it, or where the node does not run it, pip installs the wheels.",
        ),
    ] = {}
    python: Annotated[
        str,
        Parameter("The interpreter that the release is made with, on the node.", path=True),
    ] = "/usr/bin/python3"
    manifest: Annotated[
        dict[str, Any],
        Parameter(
            "The content of manifest.json in the release.",
            computed=True,
        ),
    ]

    statement: Annotated[
        dict[str, Any],
        Parameter(
            "The signed statement about the release: C(root), C(manifest) without the values of one"
            " node, C(wheels) (hashes by file name), C(plan) and C(counter)."
            " Nodes with allowed signers need it.",
        ),
    ] = {}
    signature: Annotated[
        str,
        Parameter(
            "The signature by C(ssh-keygen -Y sign -n release@fleetbuild.dev) of the statement, as"
            " JSON with sorted keys and without spaces.",
        ),
    ] = ""
    activate: Annotated[bool, Parameter("Switch to the release at the end.")] = True
    verify: Annotated[
        dict[str, Any],
        Parameter(
            "How to verify the release before the switch: C(imports), C(checks), C(timeout) and"
            " C(features) as in the role verify_wheel. Empty to leave it out."
        ),
    ] = {}


class ReleaseOptions(InstallSpec):
    """All that the module `release` takes as its spec."""

    revoked: Annotated[tuple[str, ...], _REVOKED] = ()
    withdraw: Annotated[bool, _WITHDRAW] = False


def parameters(spec: type[Frozen]) -> dict[str, Parameter]:
    """Return a spec's parameters by name."""
    return {
        name: next(each for each in info.metadata if isinstance(each, Parameter))
        for name, info in spec.model_fields.items()
    }
