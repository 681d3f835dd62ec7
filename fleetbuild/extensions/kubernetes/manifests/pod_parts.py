"""The four ways in which a group's release gets into a pod.

In: a plan, a group and the user's options. Out: `PodParts`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleetbuild.extensions.kubernetes.labels.affinity import selector
from fleetbuild.extensions.kubernetes.manifests import security
from fleetbuild.extensions.kubernetes.manifests.images import image_name, library_note
from fleetbuild.extensions.kubernetes.manifests.options import Delivery, PodParts, Way
from fleetbuild.extensions.kubernetes.manifests.release_wait import (
    VOLUME,
    daemonset_parts,
    release_path,
)
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import Note
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.models.release import requirements

# The folder of the packages in a pod that does not mount them from its node.
PACKAGES = "/fleetbuild/site-packages"

_HOSTPATH = """\
The release is mounted from the node,
  {path}
It contains
{packages}
The python of its virtual environment does not exist in the image. The image brings its own Python
{python}, of the same ABI ({abi}), and PYTHONPATH leads it to the packages.

{libc}

hostPath volumes need a namespace that allows them (Pod Security level "privileged")."""
_IMAGE = """\
The image contains the packages, at {packages_at}:
{packages}
`fleetbuild emit containers` writes its Containerfile and a script that builds and pushes it. The
node needs no release: a pod also runs on a node that has just joined."""
_VOLUME = """\
An image volume contains the packages, and nothing else:
{packages}
`fleetbuild emit containers` writes its Containerfile and a script that builds and pushes it. The
node needs no release. The pod's image brings its own Python {python}, of the same ABI ({abi}), and
PYTHONPATH leads it to the packages.

{libc}

Image volumes are on by default from Kubernetes 1.35. In 1.33 and 1.34 the feature gate ImageVolume
turns them on, in the API server and the kubelets. The node's container runtime must know them too:
containerd 2.1, CRI-O 1.31."""
_INIT = """\
An init container installs the packages, by version and sha256, from an index:
  {index}
`fleetbuild store export DIR` writes it; any web server serves the folder. The packages are
{packages}
and go into a volume of the pod, so each new pod fetches them again. The node needs no release. The
pod's image brings its own Python {python}, of the same ABI ({abi}), and PYTHONPATH leads it to the
packages.

{libc}"""
_GLIBC = """\
Use an image with glibc {floor} or newer: {floor} is the oldest version among the group's nodes."""
_MUSL = """\
The wheels need musl {floor} or newer: use an image of the Alpine family. python:*-alpine has no
libstdc++ and no libgomp; if a package needs them, use an image that contains them."""

_RELEASE = "Only nodes on which exactly this release was verified."
_CLASS = "By hardware alone, since the packages come with the pod."

# --upgrade replaces files of an interrupted first attempt. TMPDIR is in the volume, since the root
# file system is read-only.
_INSTALL = """\
set -eu
export TMPDIR={home}/tmp
mkdir -p "$TMPDIR"
printf '%s' "$REQUIREMENTS" >"$TMPDIR/requirements.txt"
python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \\
  {index} \\
  --no-deps --require-hashes --only-binary=:all: \\
  --upgrade --target={packages} -r "$TMPDIR/requirements.txt"
rm -rf "$TMPDIR"
"""


def parts(
    plan: Plan,
    group: PlannedGroup,
    delivery: Delivery,
    *,
    image: str | None = None,
    wheels: Sequence[ReleaseFile] = (),
) -> PodParts:
    """Return what a pod needs to get the group's release in the chosen way.

    `image` runs in the pod and in an init container; `wheels` are the files of the release, if
    known.
    """
    made = (
        _init(plan, group, delivery, image or "", wheels)
        if delivery.way == "init"
        else _WAYS[delivery.way](plan, group, delivery)
    )
    # For the group's own image, the Containerfile has the note.
    note = "" if made.image else library_note(group, wheels, delivery.image)
    runtime = delivery.runtime_class if made.gpu else None
    made = replace(
        made,
        about=made.about + note,
        imports=tuple(name for names in modules(group, wheels).values() for name in names),
        runtime_class=runtime,
        pods=delivery.pods,
    )
    if delivery.way == "hostpath":
        made = replace(made, daemonset=daemonset_parts(plan, group, made))
    return made


def modules(group: PlannedGroup, wheels: Sequence[ReleaseFile]) -> dict[str, tuple[str, ...]]:
    """Return the modules of each package of a group; () if neither recipe nor wheel tells them."""
    held = {file.name: file.imports for file in wheels}
    return {
        wheel.package: wheel.import_names or held.get(wheel.package, ()) for wheel in group.wheels
    }


def site_packages(release: str, abi: str) -> str:
    """Return the folder of the packages in a virtual environment of this ABI."""
    return f"{release}/lib/python{python_of(abi)}/site-packages"


def python_of(abi: str) -> str:
    """Return the version in a folder's name: 3.11 for cp311, 3.13t for cp313t."""
    digits = abi.removeprefix("cp")
    return f"{digits[:1]}.{digits[1:]}"


def _hostpath(plan: Plan, group: PlannedGroup, _: Delivery) -> PodParts:
    path = release_path(plan, group)
    directory = Note(
        {"path": path, "type": "Directory"},
        "Directory: a pod on a node without the release fails instead of making it.",
    )
    return PodParts(
        about=_about(_HOSTPATH, group, path=path),
        selector=selector(plan, group, "release"),
        why_selector=_RELEASE,
        site_packages=site_packages(path, group.target.python),
        gpu=bool(group.target.sms),
        compiled=_compiled(group),
        volume={"name": VOLUME, "hostPath": directory},
        mount={"name": VOLUME, "mountPath": path, "readOnly": True},
        why_mount="The same path as on the node, so that absolute paths in the release hold.",
    )


def _image(plan: Plan, group: PlannedGroup, delivery: Delivery) -> PodParts:
    return PodParts(
        about=_about(_IMAGE, group),
        image=image_name(delivery.repository, group),
        site_packages=PACKAGES,
        **_by_class(plan, group),
    )


def _volume(plan: Plan, group: PlannedGroup, delivery: Delivery) -> PodParts:
    reference = image_name(delivery.repository, group, "volume")
    return PodParts(
        about=_about(_VOLUME, group),
        site_packages=PACKAGES,
        volume={"name": VOLUME, "image": {"reference": reference, "pullPolicy": "IfNotPresent"}},
        mount={"name": VOLUME, "mountPath": _home(), "readOnly": True},
        **_by_class(plan, group),
    )


def _init(
    plan: Plan, group: PlannedGroup, delivery: Delivery, image: str, wheels: Sequence[ReleaseFile]
) -> PodParts:
    index = f"{delivery.index}/{group.name}/simple/"
    return PodParts(
        about=_about(_INIT, group, index=index),
        site_packages=PACKAGES,
        volume={"name": VOLUME, "emptyDir": {}},
        mount={"name": VOLUME, "mountPath": _home(), "readOnly": True},
        init_container=_installer(index, delivery.index_host, image, wheels),
        **_by_class(plan, group),
    )


_WAYS: dict[Way, Callable[[Plan, PlannedGroup, Delivery], PodParts]] = {
    "hostpath": _hostpath,
    "image": _image,
    "volume": _volume,
}


def _installer(
    index: str, trusted: str | None, image: str, wheels: Sequence[ReleaseFile]
) -> Mapping[str, Any]:
    where = f"--index-url={shlex.quote(index)}"
    if trusted:
        where += f" --trusted-host={shlex.quote(trusted)}"
    script = _INSTALL.format(home=_home(), packages=PACKAGES, index=where)
    return {
        "name": "fleetbuild-install",
        "image": image,
        "command": ["sh", "-c", script],
        "env": [
            Note(
                {"name": "REQUIREMENTS", "value": requirements(wheels)},
                "What does not have these hashes is not installed, wherever it comes from.",
            )
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": {"memory": "1Gi"},
        },
        "securityContext": security.CONTAINER,
        "volumeMounts": [{"name": VOLUME, "mountPath": _home()}],
    }


def _by_class(plan: Plan, group: PlannedGroup) -> dict[str, Any]:
    return {
        "selector": selector(plan, group, "class"),
        "why_selector": _CLASS,
        "gpu": bool(group.target.sms),
        "compiled": _compiled(group),
    }


def _compiled(group: PlannedGroup) -> str:
    """Return a folder in the pod's own /tmp; with a volume there, no two groups share one."""
    return f"/tmp/fleetbuild/{group.name}/{group.release_id}"  # noqa: S108


def _home() -> str:
    return PACKAGES.rpartition("/")[0]


def _about(text: str, group: PlannedGroup, **values: str) -> str:
    target = group.target
    libc = _GLIBC if target.libc.family == "glibc" else _MUSL
    return text.format(
        packages="\n".join(f"  {wheel.package} {wheel.wheel_version}" for wheel in group.wheels),
        packages_at=PACKAGES,
        python=python_of(target.python),
        abi=target.python,
        libc=libc.format(floor=target.libc.floor),
        **values,
    )
