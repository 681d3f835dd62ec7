"""What levels.cmake answers, asked by CMake in a tree that asks as torch's and FBGEMM's do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models import Target, TargetLibc
from fleetbuild.recipes import (
    FILES,
    VENV,
    RecipeInput,
    find_recipe,
    render_environment,
    render_files,
)

CMAKE = shutil.which("cmake")
pytestmark = pytest.mark.skipif(CMAKE is None, reason="no cmake here")

# FindAVX.cmake of both keeps a first answer, for set(... CACHE) does not replace one.
TORCH = """
cmake_minimum_required(VERSION 3.24)
project(Torch LANGUAGES CXX)
if(NOT SETUP_PY) # from 2.12 on
  set(CMAKE_PROJECT_TOP_LEVEL_INCLUDES "$ENV{CMAKE_PROJECT_TOP_LEVEL_INCLUDES}")
endif()
set(CXX_AVX512_FOUND TRUE CACHE BOOL "what the compiler can do")
set(CAFFE2_COMPILER_SUPPORTS_AVX512_EXTENSIONS TRUE CACHE BOOL "and can it?")
add_subdirectory(fbgemm)
add_subdirectory(caffe2)
# FindARM.cmake asks a compiler for Arm, and then whether to go on without the SVE kernels.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CXX_SVE256_FOUND TRUE CACHE BOOL "what the compiler can do")
  message(STATUS "says sve256: ${CXX_SVE256_FOUND}")
  if(NOT CXX_SVE256_FOUND AND NOT DEFINED ENV{BUILD_IGNORE_SVE_UNAVAILABLE})
    message(FATAL_ERROR "No SVE kernels, and nobody said to go on without them.")
  endif()
endif()
if(NOT DEFINED PYTHON_SIX_SOURCE_DIR)
  message(STATUS "says downloads: six")
endif()
message(STATUS "says torch: ${CXX_AVX512_FOUND}")
message(STATUS "says compiler: ${CAFFE2_COMPILER_SUPPORTS_AVX512_EXTENSIONS}")
"""
# A kernel is compiled from a copy for each level, in the scope of this folder.
CAFFE2 = """
set(levels DEFAULT)
if(CXX_AVX512_FOUND)
  list(APPEND levels AVX512)
endif()
foreach(level ${levels})
  set(kernel "${CMAKE_BINARY_DIR}/aten/src/ATen/native/cpu/Sum.cpp.${level}.cpp")
  file(WRITE "${kernel}" "")
  set_source_files_properties("${kernel}" PROPERTIES COMPILE_FLAGS "-O3 -DLEVEL=${level}")
  list(APPEND kernels "${kernel}")
endforeach()
add_library(torch_cpu STATIC ${kernels} other.cpp)
"""
FBGEMM = """
project(fbgemm LANGUAGES NONE)
set(CXX_AVX512_FOUND TRUE CACHE BOOL "what the compiler can do")
separate_arguments(CXX_AVX512_FLAGS)
message(STATUS "says fbgemm: ${CXX_AVX512_FOUND} ${CXX_AVX512_FLAGS}")
"""


def told(place: Path, isa: str, version: str) -> dict[str, str]:
    """What a configuration for this rung says."""
    arch = RUNGS[isa].arch
    target = Target(
        arch=arch,
        isa=isa,
        features=tuple(sorted(RUNGS[isa].features)),
        python="cp311",
        libc=TargetLibc(family="glibc", floor="2.36"),
    )
    job = RecipeInput(package="torch", version=version, target=target)
    for folder in ("fbgemm", "caffe2"):
        (place / folder).mkdir()
    (place / "CMakeLists.txt").write_text(TORCH)
    (place / "fbgemm" / "CMakeLists.txt").write_text(FBGEMM)
    (place / "caffe2" / "CMakeLists.txt").write_text(CAFFE2)
    (place / "caffe2" / "other.cpp").write_text("")
    for name, text in render_files(find_recipe("torch"), job).items():
        (place / name).write_text(text)
    given = {
        name: value.replace(FILES, str(place))
        for name, value in render_environment(find_recipe("torch"), job).items()
        if name.startswith(("BUILD_", "CMAKE_PROJECT_", "CMAKE_TOOLCHAIN_"))
    }
    options = ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    options += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={arch}"]
    if Version(version) < Version("2.12"):  # setup.py passes such variables on
        options += ["-DSETUP_PY=1", *(f"-D{name}={value}" for name, value in given.items())]
    done = subprocess.run(
        [str(CMAKE), "-S", place, "-B", place / "build", *options],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (line.partition("says ")[2] for line in done.stdout.splitlines() if "says " in line)
    return {who: " ".join(what.replace(";", " ").split())
            for who, what in (each.split(":", 1) for each in said)}  # fmt: skip


@pytest.mark.parametrize("version", ["2.6.0", "2.8.0", "2.10.0", "2.12.1", "2.14.1"])
def test_fbgemm_gets_avx512_kernels_even_if_torch_does_not(tmp_path: Path, version: str) -> None:
    """Without them torch 2.8 and older leaves FBGEMM out, and newer ones do not load."""
    said = told(tmp_path, "avx2", version)
    assert said["torch"] == "FALSE"
    assert said["compiler"] == "TRUE"
    assert said["fbgemm"].startswith("TRUE -mavx512f -mavx512dq -mavx512vl -mavx512bw ")


def test_without_fbgemm_nothing_is_compiled_for_avx512(tmp_path: Path) -> None:
    said = told(tmp_path, "avx", "2.8.0")
    assert (said["torch"], said["compiler"], said["fbgemm"]) == ("FALSE", "FALSE", "FALSE")


def test_avx512_is_not_restricted_if_the_target_has_it(tmp_path: Path) -> None:
    said = told(tmp_path, "avx512", "2.8.0")
    assert (said["torch"], said["compiler"], said["fbgemm"]) == ("TRUE", "TRUE", "TRUE")


@pytest.mark.parametrize("version", ["2.6.0", "2.12.1"])
@pytest.mark.parametrize(("isa", "without"), [("avx", True), ("avx2", False), ("avx512", False)])
def test_gcc_compiles_the_portable_kernels_without_avx_where_they_run(
    tmp_path: Path, isa: str, without: bool, version: str
) -> None:
    told(tmp_path, isa, version)
    found = json.loads((tmp_path / "build" / "compile_commands.json").read_text())
    commands = {Path(each["file"]).name: each["command"] for each in found}
    assert ("-mno-avx" in commands["Sum.cpp.DEFAULT.cpp"]) is without
    assert "-O3 -DLEVEL=DEFAULT" in commands["Sum.cpp.DEFAULT.cpp"]
    others = [each for name, each in commands.items() if "DEFAULT" not in name]
    assert others
    assert "-mno-avx" not in " ".join(others)


@pytest.mark.parametrize("version", ["2.6.0", "2.12.1"])
@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_nnpack_finds_the_package_six_and_downloads_nothing(
    tmp_path: Path, isa: str, version: str
) -> None:
    assert "downloads" not in told(tmp_path, isa, version)
    cache = (tmp_path / "build" / "CMakeCache.txt").read_text()
    assert f"PYTHON_SIX_SOURCE_DIR:PATH={VENV}/lib/python3.11/site-packages\n" in cache


@pytest.mark.parametrize("version", ["2.11.0", "2.13.0", "2.15.0"])
@pytest.mark.parametrize(
    ("isa", "kernels"),
    [("armv8", False), ("armv8.2", False), ("armv8.4sve", True), ("armv9", False)],
)
def test_torch_is_configured_on_arm_with_and_without_sve_kernels(
    tmp_path: Path, isa: str, kernels: bool, version: str
) -> None:
    """Graviton2, Graviton3 and Graviton4: since 2.11 upstream stops without these kernels."""
    assert told(tmp_path, isa, version)["sve256"] == str(kernels).upper()


def test_bf16_is_enabled_only_for_compilers_that_support_it() -> None:
    """gcc 9.4 builds torch to 2.11, and has no such option."""
    target = Target(arch="x86_64", isa="avx2", features=tuple(sorted(RUNGS["avx2"].features)),
                    python="cp311", libc=TargetLibc(family="glibc", floor="2.28"))  # fmt: skip
    for version, there in (("2.11.0", False), ("2.13.0", True)):
        job = RecipeInput(package="torch", version=version, target=target)
        recipe = find_recipe("torch")
        assert ("bf16" in render_files(recipe, job)["fbgemm.cmake"]) is there
        assert render_environment(recipe, job)["USE_FBGEMM"] == "1"
