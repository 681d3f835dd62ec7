"""A Flox environment for each group: its wheels by hash, and expressions for `flox build`.

In: a plan, and the files of each group's release. Out: file names and texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.extensions.nix.nix import from_source, python_attribute, system_of, text
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.models.release import requirements

_MANIFEST = """\
# Written by `fleetbuild emit flox` for the group {group}.
# `flox activate` in this folder installs exactly the wheels of the release {release}, each by
# its sha256; a file that is not the planned one is refused.
version = 1

[install]
python.pkg-path = "{python}"
libstdcxx.pkg-path = "gcc-unwrapped"
zlib.pkg-path = "zlib"

[hook]
on-activate = '''
  release="$FLOX_ENV_CACHE/fleetbuild-{release}"
  if [ ! -e "$release/complete" ]; then
    rm -rf "$release"
    python3 -m venv "$release"
    "$release/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir \\
      --no-index --find-links "$FLOX_ENV_PROJECT/files" --no-deps --only-binary :all: \\
      --require-hashes --requirement "$FLOX_ENV_PROJECT/requirements.txt" \\
      && touch "$release/complete"
  fi
  if [ -e "$release/complete" ]; then
    export VIRTUAL_ENV="$release" PATH="$release/bin:$PATH"
  else
    echo "The release {release} of {group} is not installed: see pip's message above." >&2
  fi
'''

[options]
systems = ["{system}"]
cuda-detection = {cuda}
"""


def flox(emission: Emission) -> EmittedFiles:
    """Write Flox environments that install each group's wheels."""
    plan = emission.plan
    wheels, messages = emission.releases("Flox environment")
    return EmittedFiles(flox_files(plan, wheels), (*messages, *flox_warnings(plan)))


def flox_files(plan: Plan, wheels: Mapping[str, Sequence[ReleaseFile]]) -> dict[str, str]:
    """Return a Flox environment for each group with wheels."""
    files: dict[str, str] = {}
    for group in plan.groups:
        if group.name in wheels and _is_served(group):
            environment = _environment(group, wheels[group.name])
            files |= {f"{group.name}/{name}": written for name, written in environment.items()}
    return files


def flox_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each group that Flox cannot serve."""
    return tuple(
        f"{group.name}: Flox has no Python for {group.target.libc.family}, so this group gets no "
        "environment. Use: fleetbuild emit nix"
        for group in plan.groups
        if not _is_served(group)
    )


def _is_served(group: PlannedGroup) -> bool:
    return group.target.libc.family == "glibc"


def _environment(group: PlannedGroup, wheels: Sequence[ReleaseFile]) -> dict[str, str]:
    manifest = _MANIFEST.format(
        group=group.name,
        release=group.release_id,
        python=python_attribute(group.target),
        system=system_of(group.target),
        cuda="true" if group.target.sms else "false",
    )
    return {
        ".flox/env.json": json.dumps({"name": group.name, "version": 1}, indent=2) + "\n",
        ".flox/env/manifest.toml": manifest,
        "requirements.txt": requirements(wheels),
        **_packages(group),
    }


def _packages(group: PlannedGroup) -> dict[str, str]:
    """Return an expression for `flox build` for each package that is built."""
    body = from_source(group)
    built = [wheel.package for wheel in group.wheels if not wheel.published]
    return {
        f".flox/pkgs/{_attribute(f'{package}-{group.name}')}.nix": (
            f"# {package} for {group.name}, built by nixpkgs, whose version and recipe it uses:\n"
            f"#   flox build {_attribute(f'{package}-{group.name}')}\n"
            "# Flox passes the path of its nixpkgs.\n"
            f"{{ path }}:\nlet\n  nixpkgs = path;\nin\n({(body or '').rstrip()}).{text(package)}\n"
        )
        for package in built
    }


def _attribute(name: str) -> str:
    return name.replace(".", "_")
