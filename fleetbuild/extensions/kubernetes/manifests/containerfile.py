"""A Containerfile for each group, and a script that builds, pushes and indexes the images.

In: a plan, delivery options and the wheels of each group. Out: file names and texts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetbuild.extensions.kubernetes.labels.affinity import ARCHITECTURES
from fleetbuild.extensions.kubernetes.manifests.images import (
    default_image,
    image_name,
    index_name,
    library_note,
)
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.extensions.kubernetes.manifests.pod_parts import PACKAGES, python_of
from fleetbuild.extensions.kubernetes.manifests.security import NOBODY
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import comment
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.models.release import requirements

_HEADER = """\
The images of the group {group}. build.sh builds both:
  --target image    Python {python} with the group's packages, which are
{packages}
  --target volume   the same packages alone, for an image volume (Kubernetes 1.35 has them on by
                    default, 1.33 and 1.34 behind the feature gate ImageVolume)

BASE is any image with a Python of this ABI, pip, and {family} {floor} or newer, such as yours."""

_CONTAINERFILE = """\
ARG BASE={base}

FROM ${{BASE}} AS packages
# Copied, so that changed hashes give a new layer: the cache ignores the content of mounts.
COPY requirements.txt /requirements.txt
# The wheels are mounted and not copied, so that no layer contains them. pip checks the sha256 of
# each wheel.
RUN --mount=type=bind,source=files,target=/wheels \\
    python3 -m pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore \\
      --no-index --find-links=/wheels --no-deps --require-hashes --only-binary=:all: \\
      --target={packages} -r /requirements.txt

FROM scratch AS volume
COPY --from=packages {packages} /{folder}

FROM ${{BASE}} AS image
COPY --from=packages {packages} {packages}
LABEL {domain}/group={group} \\
      {domain}/release={release}
ENV PYTHONPATH={packages}
USER {nobody}:{nobody}
"""

_SCRIPT_HEADER = """\
Builds the images of {groups}, with podman, docker or buildah:
    sh build.sh              builds
    sh build.sh --push       builds and pushes, and makes the index of several architectures
    ENGINE=docker sh build.sh
An image of another architecture than this machine's needs QEMU's user mode (binfmt_misc), or a
machine of that architecture: BASE runs while the packages are installed."""

_SCRIPT = """\
set -eu
cd "$(dirname "$0")"
push=
case "${1-}" in
  --push) push=yes ;;
  ?*) echo "usage: sh build.sh [--push]" >&2; exit 2 ;;
esac
engine=${ENGINE:-}
for known in podman docker buildah; do
  [ -n "$engine" ] || ! command -v "$known" >/dev/null || engine=$known
done
[ -n "$engine" ] || { echo "podman, docker or buildah is needed" >&2; exit 2; }

# build FOLDER PLATFORM TARGET IMAGE
build() {
  "$engine" build --platform "$2" --target "$3" --tag "$4" --file "$1/Containerfile" "$1"
  [ -z "$push" ] || "$engine" push "$4"
}

# index NAME IMAGE...: one name for images of several architectures
index() {
  name=$1
  shift
  case "$engine" in
    *docker)  # makes an index of pushed images only
      [ -n "$push" ] || return 0
      "$engine" manifest create --amend "$name" "$@"
      "$engine" manifest push --purge "$name"
      ;;
    *)
      "$engine" manifest rm "$name" >/dev/null 2>&1 || true
      "$engine" manifest create "$name"
      for image; do "$engine" manifest add "$name" "containers-storage:$image"; done
      [ -z "$push" ] || "$engine" manifest push --all "$name" "docker://$name"
      ;;
  esac
}

"""


def containers(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]]
) -> dict[str, str]:
    """Return {file name: text}: build.sh, and for each group the inputs of its image."""
    files: dict[str, str] = {}
    built = _built(plan, delivery, wheels)
    for group in built:
        base = delivery.image or default_image(group.target) or ""
        note = library_note(group, wheels[group.name], delivery.image)
        files[f"{group.name}/Containerfile"] = _containerfile(plan, group, base, note)
        files[f"{group.name}/requirements.txt"] = requirements(wheels[group.name])
    return dict(sorted({**files, "build.sh": _script(plan, delivery, built)}.items()))


def index_warnings(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]]
) -> tuple[str, ...]:
    """Return a sentence for each index that build.sh does not make."""
    made = indexes(_built(plan, delivery, wheels), plan.groups)
    return tuple(each.says for each in made if not each.members)


def _built(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]]
) -> list[PlannedGroup]:
    return [
        group
        for group in sorted(plan.groups, key=lambda group: group.name)
        if wheels.get(group.name) and (delivery.image or default_image(group.target))
    ]


def _containerfile(plan: Plan, group: PlannedGroup, base: str, note: str) -> str:
    target = group.target
    header = _HEADER.format(
        group=group.name,
        python=python_of(target.python),
        packages="\n".join(
            f"                    {wheel.package} {wheel.wheel_version}" for wheel in group.wheels
        ),
        family=target.libc.family,
        floor=target.libc.floor,
    )
    body = _CONTAINERFILE.format(
        base=base,
        packages=PACKAGES,
        folder=PACKAGES.rpartition("/")[2],
        domain=plan.label_domain,
        group=group.name,
        release=group.release_id,
        nobody=NOBODY,
    )
    return "\n".join(comment(header + note)) + "\n" + body


def _script(plan: Plan, delivery: Delivery, groups: Sequence[PlannedGroup]) -> str:
    names = ", ".join(group.name for group in groups) or "no group"
    header = comment(_SCRIPT_HEADER.format(groups=names))
    calls = [*_builds(delivery, groups), *_indexes(delivery, indexes(groups, plan.groups))]
    return "\n".join(["#!/bin/sh", *header]) + "\n" + _SCRIPT + "".join(calls)


def _builds(delivery: Delivery, groups: Sequence[PlannedGroup]) -> Iterator[str]:
    for group in groups:
        folder, platform = f"./{group.name}", f"linux/{_architecture(group)}"
        for target, suffix in (("image", ""), ("volume", "volume")):
            name = image_name(delivery.repository, group, suffix)
            yield shlex.join(["build", folder, platform, target, name]) + "\n"


def _indexes(delivery: Delivery, made: Iterator[Index]) -> Iterator[str]:
    for each in made:
        yield "\n" + "\n".join(comment(each.says)) + "\n"
        if each.members:
            images = [image_name(delivery.repository, group) for group in each.members]
            name = index_name(delivery.repository, each.members)
            yield shlex.join(["index", name, *images]) + "\n"


def _architecture(group: PlannedGroup) -> str:
    return ARCHITECTURES.get(group.target.arch, group.target.arch)


_INDEX = """\
For pods of Python {abi}{gpu} that run on either architecture: for each architecture, the image of
the group with the lowest requirements."""
_BEYOND = """
Do not run it on nodes of these groups, which lack required features: {groups}"""
_NONE = "{abi} gets no index: none of {groups} runs on the nodes of all the others."


@dataclass(frozen=True)
class Index:
    """One name for images of several architectures."""

    members: tuple[PlannedGroup, ...]  # empty if no group serves the nodes of the others
    says: str  # its purpose, or why it cannot be made


def indexes(built: Sequence[PlannedGroup], fleet: Sequence[PlannedGroup]) -> Iterator[Index]:
    """Yield an index for each Python ABI that was built for several architectures.

    Groups with GPUs have their own, because a pod either asks for a GPU or does not.
    """
    for abi, gpu in sorted({(one.target.python, bool(one.target.sms)) for one in built}):
        some = [one for one in built if (one.target.python, bool(one.target.sms)) == (abi, gpu)]
        by_arch = [
            [one for one in some if one.target.arch == arch]
            for arch in sorted({one.target.arch for one in some})
        ]
        if len(by_arch) > 1:
            yield _index(abi, by_arch, [one for one in fleet if one.target.sms or not gpu])


def _index(
    abi: str, by_arch: Sequence[Sequence[PlannedGroup]], fleet: Sequence[PlannedGroup]
) -> Index:
    members: list[PlannedGroup] = []
    for some in by_arch:
        least = least_demanding(some)
        if least is None:
            names = ", ".join(one.name for one in some)
            return Index((), _NONE.format(abi=abi, groups=names))
        members.append(least)
    gpu = " with a GPU" if members[0].target.sms else ""
    says = _INDEX.format(abi=abi, gpu=gpu)
    if beyond := sorted(one.name for one in fleet if not _runs_there(members, one)):
        says += _BEYOND.format(groups=", ".join(beyond))
    return Index(tuple(members), says)


def least_demanding(groups: Sequence[PlannedGroup]) -> PlannedGroup | None:
    """Return the group whose wheels run on the nodes of all these groups, or None."""
    fits = [one for one in groups if all(_needs_no_more(one, other) for other in groups)]
    return min(fits, key=lambda group: group.name, default=None)


def _runs_there(members: Sequence[PlannedGroup], node: PlannedGroup) -> bool:
    """Return whether nodes of this group run the member of their architecture."""
    mine = [one for one in members if one.target.arch == node.target.arch]
    return all(_needs_no_more(one, node) for one in mine)


def _needs_no_more(one: PlannedGroup, other: PlannedGroup) -> bool:
    """Return whether the wheels of `one` run on the nodes of `other`.

    Without SMs wheels use only the CPU; with SMs they need one of these GPUs.
    """
    sms = set(one.target.sms)
    fits_gpus = not sms or bool(other.target.sms and set(other.target.sms) <= sms)
    return fits_gpus and set(one.target.features) <= set(other.target.features)
