"""A real CUDA extension, compiled by nvcc for one SM and for several, holds exactly those."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fleetbuild.audit import audit_wheel, check_wheel
from fleetbuild.models import Target
from tests.factories.plans import make_target
from tests.toolkit import cuda_toolkit

SOURCE = Path(__file__).parents[2] / "cuda_extension"


@pytest.fixture(scope="module")
def cuda_home() -> Path:
    return cuda_toolkit()


VERSION = "1.0+cu130.several.x8664v2"


def build(folder: Path, cuda_home: Path, archs: str) -> Path:
    """The extension's wheel, built for these SMs."""
    tree = shutil.copytree(SOURCE, folder / "tree")
    project = tree / "pyproject.toml"
    project.write_text(project.read_text().replace('"1.0"', f'"{VERSION}"'))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    environment = {
        **os.environ,
        "CUDA_HOME": str(cuda_home),
        "CUDACXX": str(cuda_home / "bin/nvcc"),
        "CXXFLAGS": "-O2 -march=x86-64-v2",
        "TORCH_CUDA_ARCH_LIST": archs,
    }
    done = subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", folder, tree],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("cuda_saxpy-*.whl")
    return wheel


def target(*sms: str) -> Target:
    return make_target("x86-64-v2", "2.99", sms=sms, python=f"cp3{sys.version_info.minor}")


def findings(wheel: Path, *sms: str) -> tuple[str, ...]:
    return check_wheel(wheel, target=target(*sms), package="cuda-saxpy", wheel_version=VERSION)


@pytest.mark.parametrize(
    ("archs", "sms", "ptx"),
    [
        ("8.6", ("8.6",), ()),
        ("7.5 8.0 8.6 9.0a 12.0+PTX", ("7.5", "8.0", "8.6", "9.0a", "12.0"), ("12.0",)),
    ],
)
def test_the_wheel_has_code_for_exactly_the_requested_sms(
    tmp_path: Path, cuda_home: Path, archs: str, sms: tuple[str, ...], ptx: tuple[str, ...]
) -> None:
    wheel = build(tmp_path, cuda_home, archs)
    audit = audit_wheel(wheel)
    assert audit.problems == ()
    assert (audit.sms, audit.ptx) == (sms, ptx)
    assert findings(wheel, *(sm.rstrip("a") for sm in sms)) == ()
    newest = target(*(sm.rstrip("a") for sm in sms)).model_copy(update={"ptx": sms[-1]})
    told = check_wheel(wheel, target=newest, package="cuda-saxpy", wheel_version=VERSION)
    assert bool(told) is not bool(ptx), told
    # Without our reader: each piece of machine code names its SM in its own ELF flags.
    with zipfile.ZipFile(wheel) as file:
        (library,) = (name for name in file.namelist() if "/_saxpy." in name)
        assert _sms_by_elf_flags(file.read(library)) == {
            int(sm.replace(".", "").rstrip("a")) for sm in sms
        }
    assert any("no code for SM 10.0" in told for told in findings(wheel, *sms, "10.0"))
    others = {sm.rstrip("a") for sm in sms[1:]}
    assert any("GPU code for SM" in told for told in findings(wheel, sms[0])) is bool(others)


def _sms_by_elf_flags(data: bytes) -> set[int]:
    """The SMs of the cubins (ELF files for NVIDIA's machine 190) that lie uncompressed in data."""
    cubins = (data[at : at + 64] for at in _each(data, b"\x7fELF\x02\x01\x01"))
    flags = [int.from_bytes(head[48:52], "little") for head in cubins if head[18:20] == b"\xbe\x00"]
    # The SM stands in bits 8 to 15 since CUDA 12.8 or so, and in bits 0 to 7 before.
    return {flag >> 8 & 0xFF or flag & 0xFF for flag in flags}


def _each(data: bytes, mark: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(mark), data)]


def test_a_build_without_an_sm_list_fails(tmp_path: Path, cuda_home: Path) -> None:
    with pytest.raises(AssertionError, match="TORCH_CUDA_ARCH_LIST must name the SMs"):
        build(tmp_path, cuda_home, " ")
    shutil.rmtree(tmp_path / "tree")
    with pytest.raises(AssertionError, match=r"Unknown CUDA arch \(sm_90\)"):
        build(tmp_path, cuda_home, "sm_90")
