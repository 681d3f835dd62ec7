"""Nix expressions for each group: install its wheels by hash; build its target from nixpkgs.

In: a plan, and the files of each group's release. Out: file names and texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fleetbuild.emit.emission import Emission, EmittedFiles
from fleetbuild.models import Plan, PlannedGroup, PlannedWheel, ReleaseFile, Target

_HEAD = "# Written by `fleetbuild emit nix` for the group {group}.\n"

_RELEASE = """\
# Install exactly the wheels of the release {release}, each by its sha256:
#   nix-build {group}/release.nix && ./result/bin/python
# A file that is not the planned one stops the evaluation.
{{ pkgs ? {packages}
, files ? ./files
}}:
let
  python = pkgs.{python};
  wheels = builtins.map
    (wheel: builtins.path {{
      inherit (wheel) name sha256;
      path = files + "/${{wheel.name}}";
      recursive = false;
    }})
    [
{wheels}
    ];
in
pkgs.stdenv.mkDerivation {{
  pname = "fleetbuild-{group}";
  version = "{release}";
  dontUnpack = true;
  nativeBuildInputs = [ pkgs.autoPatchelfHook pkgs.makeWrapper python.pkgs.pip ];
  buildInputs = [ pkgs.stdenv.cc.cc.lib pkgs.zlib ];
  # The driver's libcuda.so.1 is the host's; the wheels find each other's libraries themselves.
  autoPatchelfIgnoreMissingDeps = true;
  installPhase = ''
    mkdir wheels
    for wheel in ${{toString wheels}}; do
      cp "$wheel" "wheels/$(stripHash "$wheel")"
    done
    ${{python.interpreter}} -m pip install --no-index --no-deps --no-cache-dir \\
      --disable-pip-version-check --target "$out/${{python.sitePackages}}" wheels/*.whl
    mkdir -p "$out/bin"
    makeWrapper ${{python.interpreter}} "$out/bin/python" \\
      --prefix PYTHONPATH : "$out/${{python.sitePackages}}"
  '';
}}
"""

_FROM_SOURCE = """\
let
  # Version and flags of each package, as planned.
  planned = {{
{planned}
  }};
  tuned = lib: previous: name: wanted:
    let
      package = previous.${{name}} or (throw "This nixpkgs has no Python package ${{name}}.");
    in
    lib.warnIf (package.version != wanted.version)
      "nixpkgs has ${{name}} ${{package.version}}, and the plan has ${{wanted.version}}."
      (package.overrideAttrs (old: {{
        preConfigure = (old.preConfigure or "") + ''
          export CFLAGS=${{lib.escapeShellArg wanted.cflags}}" ''${{CFLAGS-}}"
          export CXXFLAGS=${{lib.escapeShellArg wanted.cxxflags}}" ''${{CXXFLAGS-}}"
        '';
      }}));
  pkgs = import nixpkgs {{
    system = "{system}";
    config = {config};
    overlays = [
      (final: previous: {{
        pythonPackagesExtensions = (previous.pythonPackagesExtensions or [ ]) ++ [
          (_: packages: builtins.mapAttrs (tuned final.lib packages) planned)
        ];{toolkit}
      }})
    ];
  }};
in
builtins.mapAttrs (name: _: pkgs.{python}.pkgs.${{name}}) planned
"""

_TOOLKIT = """
        cudaPackages = previous.{name} or (throw "This nixpkgs has no CUDA {version}.");"""


def nix(emission: Emission) -> EmittedFiles:
    """Write Nix expressions that install each group's wheels.

    They install by hash, or build the group's target from nixpkgs.
    """
    wheels, messages = emission.releases("Nix expression")
    return EmittedFiles(nix_files(emission.plan, wheels), messages)


def nix_files(plan: Plan, wheels: Mapping[str, Sequence[ReleaseFile]]) -> dict[str, str]:
    """Return release.nix for each group with wheels, and from-source.nix where wheels are built."""
    files: dict[str, str] = {}
    for group in plan.groups:
        if group.name not in wheels:
            continue
        files[f"{group.name}/release.nix"] = _release(group, wheels[group.name])
        if body := from_source(group):
            files[f"{group.name}/from-source.nix"] = (
                f"{_HEAD.format(group=group.name)}"
                "# The same target built by nixpkgs, whose versions and recipes it uses:\n"
                f"#   nix-build {group.name}/from-source.nix -A {_built(group)[0].package}\n"
                f"{{ nixpkgs ? <nixpkgs> }}:\n{body}"
            )
    return files


def from_source(group: PlannedGroup) -> str | None:
    """Return an expression over `nixpkgs` for a group's packages; None if none of them is built."""
    built = _built(group)
    if not built:
        return None
    target, cuda = group.target, next((wheel.cuda for wheel in built if wheel.cuda), None)
    toolkit = f"cudaPackages_{cuda.replace('.', '_')}" if cuda else ""
    return _FROM_SOURCE.format(
        planned="\n".join(f"    {_planned(wheel)}" for wheel in built),
        system=system_of(target),
        config=_config(built, cuda),
        toolkit=_TOOLKIT.format(name=toolkit, version=cuda) if cuda else "",
        python=_python(target),
    )


def system_of(target: Target) -> str:
    """Return Nix's name of the platform: x86_64-linux."""
    return f"{target.arch}-{target.os}"


def python_attribute(target: Target) -> str:
    """Return nixpkgs' name of an interpreter: python311, python313FreeThreading."""
    match = re.match(r"cp(\d+)(t?)", target.python)
    version, threads = match.groups() if match else ("3", "")
    return f"python{version}" + ("FreeThreading" if threads else "")


def text(value: str) -> str:
    """Return a Nix string with this text."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return '"' + escaped.replace("\n", "\\n") + '"'


def _release(group: PlannedGroup, wheels: Sequence[ReleaseFile]) -> str:
    packages = f'import <nixpkgs> {{ system = "{system_of(group.target)}"; }}'
    return _HEAD.format(group=group.name) + _RELEASE.format(
        group=group.name,
        release=group.release_id,
        packages=packages,
        python=_python(group.target),
        wheels="\n".join(
            f"      {{ name = {text(wheel.path.name)}; sha256 = {text(wheel.sha256)}; }}"
            for wheel in sorted(wheels, key=lambda wheel: wheel.path.name)
        ),
    )


def _python(target: Target) -> str:
    within = "pkgsMusl." if target.libc.family == "musl" else ""
    return within + python_attribute(target)


def _built(group: PlannedGroup) -> tuple[PlannedWheel, ...]:
    return tuple(wheel for wheel in group.wheels if not wheel.published)


def _planned(wheel: PlannedWheel) -> str:
    flags = {name: wheel.environment.get(name.upper(), "") for name in ("cflags", "cxxflags")}
    values = {"version": wheel.version, **flags}
    inner = " ".join(f"{name} = {text(value)};" for name, value in values.items())
    return f"{text(wheel.package)} = {{ {inner} }};"


def _config(built: Sequence[PlannedWheel], cuda: str | None) -> str:
    if cuda is None:
        return "{ }"
    targets = [wheel.target for wheel in built if wheel.target.sms]
    sms = " ".join(text(sm) for sm in max((target.sms for target in targets), key=len))
    forward = "true" if any(target.ptx for target in targets) else "false"
    return (
        "{\n      allowUnfree = true;\n      cudaSupport = true;\n"
        f"      cudaCapabilities = [ {sms} ];\n      cudaForwardCompat = {forward};\n    }}"
    )
