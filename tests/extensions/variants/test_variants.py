"""`fleetbuild store variants`: uv takes the wheel of a machine's level."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetbuild.audit import audit_wheel
from fleetbuild.extensions.variants.export import write_variants
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.programs import uv_program
from fleetbuild.store.wheels import Store
from tests.factories.files import make_wheel as wheel_file
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

ELSEWHERE = ("unshare", "--map-root-user", "--mount")  # namespaces, where the machine allows them
BIND = 'mount --bind "$0" /proc/cpuinfo && exec "$@"'
FLAG = ("--preview-features", "wheel-variants")


def exported(tmp_path: Path, rungs: Sequence[str]) -> tuple[Path, Sequence[str]]:
    """A folder with a wheel for each of these rungs, which names it; and the wheels left out."""
    store, groups = Store(tmp_path / "store"), []
    for number, rung in enumerate(rungs):
        version = f"0.8.0+cpu.{rung.replace('-', '')}"
        target = make_target(rung)
        planned = make_wheel("hnswlib", version, target, artifact_key=f"{number:032}")
        files = {"hnswlib.py": f"rung = {rung!r}\n".encode()}
        built = wheel_file(tmp_path / rung, "hnswlib", version, files=files)
        store.add(built, planned, built_on="a", seconds=1)
        groups.append(make_group((f"n{number}",), target, [planned]))
    folder = tmp_path / "out dir"
    _, left_out = write_variants(make_plan(groups), store, folder)
    return folder, left_out


def taken(folder: Path, *flags: str, start: Sequence[str] = ()) -> str:
    """The rung of the wheel that uv installs from this folder."""
    there = folder.parent / "there"
    shutil.rmtree(there, ignore_errors=True)
    command = [
        *start, uv_program(), "pip", "install", "--quiet", "--no-config", "--no-cache",
        "--no-index", "--python", sys.executable, "--target", str(there), *flags,
        "--find-links", str(folder),
        "hnswlib==0.8.0",
    ]  # fmt: skip
    subprocess.run(command, check=True, env={**os.environ, "UV_LINK_MODE": "copy"})
    return (there / "hnswlib.py").read_text().split("'")[1]


def test_uv_takes_the_highest_level_of_this_machine_and_pip_the_plain_wheel(tmp_path: Path) -> None:
    folder, left_out = exported(tmp_path, ["x86-64", "x86-64-v2", "avx", "avx2"])
    assert left_out == ("hnswlib of cpu-avx-cp311 is left out: uv knows no such level.",)
    flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].partition("\n")[0]
    rungs = ("x86-64", "x86-64-v2", "avx2")
    here = [rung for rung in rungs if RUNGS[rung].features <= {*flags.split()}]
    assert taken(folder, *FLAG) == here[-1]
    assert taken(folder) == "x86-64"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, f"--find-links={folder}", f"--dest={tmp_path}", "hnswlib"], check=True
    )
    assert (tmp_path / "hnswlib-0.8.0-py3-none-any.whl").is_file()


def test_uv_takes_the_level_of_an_older_machine(tmp_path: Path) -> None:
    """uv goes by /proc/cpuinfo."""
    folder, _ = exported(tmp_path, ["x86-64", "x86-64-v2", "avx2"])
    older = tmp_path / "cpuinfo"
    older.write_text(re.sub(r"\b(avx2|bmi2)\b", "", Path("/proc/cpuinfo").read_text()))
    if subprocess.run([*ELSEWHERE, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    there = (*ELSEWHERE, "sh", "-c", BIND, str(older))
    assert taken(folder, *FLAG, start=there) == "x86-64-v2"


def test_a_wheel_that_requires_one_build_of_another_is_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    wheel = make_wheel("pkg", "1.0+cpu.avx2", built_against=("torch==2.13.0+cpu.avx2",))
    files = wheel_file(tmp_path, "pkg", "1.0+cpu.avx2", files={"pkg.py": b""})
    store.add(files, wheel, built_on="a", seconds=1)
    written, (left_out,) = write_variants(
        make_plan([make_group(wheels=[wheel])]), store, tmp_path / "out"
    )
    assert not written
    assert "requires one build" in left_out


def test_the_same_wheels_make_the_same_files_and_uv_accepts_their_records(tmp_path: Path) -> None:
    folder, _ = exported(tmp_path / "one", ["x86-64-v2", "avx2"])
    again, _ = exported(tmp_path / "two", ["x86-64-v2", "avx2"])
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((folder / name).read_bytes() == (again / name).read_bytes() for name in names)
    described = json.loads((folder / "hnswlib-0.8.0-variants.json").read_text())
    assert sorted(described["variants"]) == ["v2", "v3"]
    levels = {path.stem.split("-")[-1] for path in folder.glob("*.whl")}
    assert levels == set(described["variants"])
    for path in folder.glob("*.whl"):
        plain = shutil.copy(path, tmp_path / _plain(path.name))
        assert not audit_wheel(plain).problems


def _plain(name: str) -> str:
    """The name without its label, which readers of today's wheels do not know."""
    return name.rpartition("-")[0] + ".whl"
