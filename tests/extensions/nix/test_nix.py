"""`emit nix` and `emit flox`: Nix evaluates and builds the files, Flox's hook installs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.extensions.nix.flox import flox_files, flox_warnings
from fleetbuild.extensions.nix.nix import nix_files
from fleetbuild.files import sha256_of
from fleetbuild.models import Plan, ReleaseFile, TargetLibc
from tests.factories.files import make_wheel as make_file
from tests.factories.plans import (
    RELEASE_ID,
    make_group,
    make_plan,
    make_target,
    make_wheel,
    wheels_of,
)

needs_nix = pytest.mark.skipif(
    shutil.which("nix-instantiate") is None, reason="needs the Debian package nix-bin"
)
SETTINGS = "sandbox = false\nsubstitute = false\nbuild-users-group =\n"
GPU = "sm86.sm90-avx2-cp311"
DEMO = {"demo/__init__.py": b""}
FLAGS = {"CFLAGS": "-O3 -march=x86-64-v3", "CXXFLAGS": '-O3 -march=x86-64-v3 -DX="${y}"'}

# As much of nixpkgs as these expressions use, with packages that keep their arguments.
NIXPKGS = """\
{ system, config, overlays ? [ ] }:
let
  lib = rec {
    escapeShellArg = text: "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] text + "'";
    warnIf = condition: message: value: if condition then builtins.trace message value else value;
  };
  package = version: {
    inherit version system config;
    overrideAttrs = change: package version // change { preConfigure = "echo before\\n"; };
  };
  base = {
    inherit lib;
    cudaPackages_13_0 = { version = "13.0"; };
    pythonPackagesExtensions = [ ];
  };
  all = base // (builtins.elemAt overlays 0) all base;
  packages = { torch = package "2.13.0"; hnswlib = package "0.7.0"; };
  extend = (builtins.elemAt all.pythonPackagesExtensions 0) { } packages;
in
all // { python311.pkgs = packages // extend // { cuda = all.cudaPackages.version; }; }
"""

# A derivation that runs installPhase with this machine's Python in place of nixpkgs'.
PACKAGES = """\
let python = { interpreter = "@python@"; sitePackages = "site-packages"; pkgs.pip = ""; }; in
{
  python311 = python;
  autoPatchelfHook = "";
  makeWrapper = "";
  zlib = "";
  stdenv.cc.cc.lib = "";
  stdenv.mkDerivation = args: derivation {
    name = args.pname + "-" + args.version;
    system = builtins.currentSystem;
    builder = "/bin/bash";
    PATH = "/usr/bin:/bin";
    PYTHONPATH = "@pip@";
    args = [ "-euc" ''
      stripHash() { basename "$1" | cut -d- -f2-; }
      makeWrapper() {
        printf '#!/bin/sh\\nPYTHONPATH=%s exec %s "$@"\\n' "$6" "$1" >"$2"
        chmod +x "$2"
      }
      cd "$TMPDIR"
      ${args.installPhase}
    '' ];
  };
}
"""


def plan_of(*groups: Any) -> Plan:
    return make_plan(groups)


def gpu_plan(**changes: Any) -> Plan:
    target = make_target("avx2", sms=("8.6", "9.0"), **changes)
    wheels = (
        make_wheel("torch", "2.13.0+cu130.sm86.sm90.avx2", target, cuda="13.0", environment=FLAGS),
        make_wheel("hnswlib", "0.8.0+cpu.avx2", environment={"CFLAGS": "-O3 -mavx2"}),
    )
    return plan_of(make_group(("gpu-1",), target, wheels))


def nix(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Nix with a store of its own, without any daemon or network."""
    own = {f"NIX_{name}_DIR": str(folder / "nix" / name) for name in
           ("STORE", "STATE", "LOG", "LOCALSTATE", "CONF", "DATA")}  # fmt: skip
    (folder / "nix").mkdir(exist_ok=True)
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **own, "NIX_PATH": "", "NIX_CONFIG": SETTINGS,
             "NIX_REMOTE": "", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def evaluated(folder: Path, expression: str) -> tuple[Any, str]:
    done = nix(folder, "nix-instantiate", "--eval", "--strict", "--json", "-E", expression)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@needs_nix
@pytest.mark.parametrize(("changes", "forward"), [({}, False), ({"ptx": "9.0"}, True)])
def test_nixpkgs_builds_the_target_of_the_group(
    tmp_path: Path, changes: dict[str, str], forward: bool
) -> None:
    plan = gpu_plan(**changes)
    write(tmp_path, nix_files(plan, wheels_of(plan)))
    write(tmp_path, {"nixpkgs/default.nix": NIXPKGS})
    expression = f'(import (./. + "/{GPU}/from-source.nix") {{ nixpkgs = ./nixpkgs; }})'
    wanted = "{ inherit (p) version system config preConfigure; }"
    torch, told = evaluated(tmp_path, f"let p = {expression}.torch; in {wanted}")
    assert torch["system"] == "x86_64-linux"
    assert torch["config"] == {
        "allowUnfree": True,
        "cudaSupport": True,
        "cudaCapabilities": ["8.6", "9.0"],
        "cudaForwardCompat": forward,
    }
    assert torch["preConfigure"].startswith("echo before\n")
    done = subprocess.run(
        ["bash", "-c", torch["preConfigure"] + 'printf "%s|%s" "$CFLAGS" "$CXXFLAGS"'],
        env={"PATH": os.environ["PATH"], "CFLAGS": "-g"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    flags = FLAGS["CXXFLAGS"] + " "
    assert done.stdout == f"before\n-O3 -march=x86-64-v3 -g|{flags}"
    assert "trace" not in told
    hnswlib, told = evaluated(tmp_path, f"{expression}.hnswlib.preConfigure")
    assert "-O3 -mavx2" in hnswlib
    assert "nixpkgs has hnswlib 0.7.0, and the plan has 0.8.0." in told


@needs_nix
def test_a_cpu_group_needs_no_cuda(tmp_path: Path) -> None:
    plan = make_plan()
    write(tmp_path, nix_files(plan, wheels_of(plan)))
    write(tmp_path, {"nixpkgs/default.nix": NIXPKGS})
    expression = 'import (./. + "/cpu-avx2-cp311/from-source.nix") { nixpkgs = ./nixpkgs; }'
    config, _ = evaluated(tmp_path, f"({expression}).hnswlib.config")
    assert config == {}


@needs_nix
@pytest.mark.parametrize("right", [True, False])
def test_nix_installs_the_wheels_by_hash(tmp_path: Path, right: bool) -> None:
    plan, wheel = _with_wheel(tmp_path, right=right)
    write(tmp_path, nix_files(plan, {"cpu-avx2-cp311": (wheel,)}))
    text = PACKAGES.replace("@python@", sys.executable)
    write(
        tmp_path,
        {"packages.nix": text.replace("@pip@", str(Path(str(find_spec("pip").origin)).parents[1]))},
    )
    arguments = ("--arg", "pkgs", "import ./packages.nix")
    done = nix(tmp_path, "nix-build", "./cpu-avx2-cp311/release.nix", *arguments)
    if not right:
        assert done.returncode != 0
        assert "mismatch" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    python = tmp_path / "result" / "bin" / "python"
    code = "import demo; print(demo.__file__)"
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert f"fleetbuild-cpu-avx2-cp311-{RELEASE_ID}/site-packages/demo" in said.stdout


@needs_nix
def test_flox_gets_expressions_that_nix_can_read(tmp_path: Path) -> None:
    plan = gpu_plan()
    write(tmp_path, flox_files(plan, wheels_of(plan)))
    write(tmp_path, {"nixpkgs/default.nix": NIXPKGS})
    (torch,) = (tmp_path / GPU / ".flox" / "pkgs").glob("torch-*.nix")
    assert torch.name == "torch-sm86_sm90-avx2-cp311.nix"  # a dot would end Nix's attribute
    named, _ = evaluated(tmp_path, f"(import {torch} {{ path = ./nixpkgs; }}).version")
    assert named == "2.13.0"


def test_the_manifest_of_flox_has_only_keys_of_its_schema() -> None:
    plan = gpu_plan()
    files = flox_files(plan, wheels_of(plan))
    assert json.loads(files[f"{GPU}/.flox/env.json"]) == {"name": GPU, "version": 1}
    manifest = tomllib.loads(files[f"{GPU}/.flox/env/manifest.toml"])
    # flox's manifest-v1.schema.json allows no other keys at these places.
    assert manifest.keys() <= {"version", "install", "vars", "hook", "profile", "options", "build"}
    assert manifest["version"] == 1
    assert all(each.keys() == {"pkg-path"} for each in manifest["install"].values())
    assert manifest["install"]["python"] == {"pkg-path": "python311"}
    assert manifest["hook"].keys() == {"on-activate"}
    assert manifest["options"] == {"systems": ["x86_64-linux"], "cuda-detection": True}


@pytest.mark.parametrize("right", [True, False])
def test_the_hook_of_flox_installs_the_wheels_by_hash(tmp_path: Path, right: bool) -> None:
    plan, wheel = _with_wheel(tmp_path, right=right)
    write(tmp_path, flox_files(plan, {"cpu-avx2-cp311": (wheel,)}))
    project = tmp_path / "cpu-avx2-cp311"
    manifest = tomllib.loads((project / ".flox" / "env" / "manifest.toml").read_text())
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "hook.sh").write_text(manifest["hook"]["on-activate"])
    script = 'set -e; . "$1"; python -c "import demo; print(demo.__file__)"'
    runs = [
        subprocess.run(
            ["bash", "-c", script, "activate", str(tmp_path / "hook.sh")],
            env={"PATH": f"{programs}:/usr/bin:/bin", "FLOX_ENV_PROJECT": str(project),
                 "FLOX_ENV_CACHE": str(tmp_path / "cache")},
            capture_output=True, text=True, check=False,
        )
        for _ in range(2)
    ]  # fmt: skip
    for done in runs:
        assert (done.returncode == 0) is right, done.stderr
        assert (f"cache/fleetbuild-{RELEASE_ID}/lib" in done.stdout) is right
    if not right:
        assert "is not installed: see pip's message above" in runs[0].stderr


def test_flox_is_not_offered_for_musl() -> None:
    target = make_target(libc=TargetLibc(family="musl", floor="1.2"))
    plan = plan_of(make_group(("a",), target, (make_wheel(target=target),)))
    assert flox_files(plan, wheels_of(plan)) == {}
    (sentence,) = flox_warnings(plan)
    assert "cpu-avx2-cp311-musl: Flox has no Python for musl" in sentence
    files = nix_files(plan, wheels_of(plan))
    assert "pkgs.pkgsMusl.python311" in files["cpu-avx2-cp311-musl/release.nix"]


def _with_wheel(tmp_path: Path, *, right: bool) -> tuple[Plan, ReleaseFile]:
    """A plan of one group, and its wheel in the folder that `emit` copies to."""
    path = make_file(tmp_path / "cpu-avx2-cp311" / "files", "demo", "0.8.0+cpu.avx2", files=DEMO)
    sha256 = sha256_of(path) if right else "ab" * 32
    return make_plan(), ReleaseFile("demo", path, sha256)
