"""A gcc beside the default one: found, installed, and built with."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return folder / name


def compilers(folder: Path, suffix: str, version: str) -> None:
    """A gcc and a g++ that say who they are."""
    for name in (f"gcc{suffix}", f"g++{suffix}"):
        answers = [f"-dumpversion) echo {version} ;;", f"--version) echo '{name} (X) {version}' ;;"]
        program(
            folder, name, f'case $1 in {" ".join(answers)} *) echo "{name} {version}: $*" ;; esac'
        )


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's programs: gcc 9.4.0, and gcc 10.5.0 beside it."""
    compilers(tmp_path / "bin", "", "9.4.0")
    compilers(tmp_path / "bin", "-10", "10.5.0")
    program(tmp_path / "bin", "clang", 'echo "clang: $*"')
    program(tmp_path / "bin", "gcc-11", "echo 11")  # without its g++
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


@pytest.fixture
def made(build_compilers: ModuleType, node: Path) -> Any:
    """Has the wrappers made for a gcc and a cache; answers what each name runs."""

    def make(gcc: str, cache: str = "none", path: str = f"{node}/bin:/usr/bin:/bin") -> Any:
        wrappers = str(node / "wrappers")
        params = {"gcc": gcc, "cache": cache, "cuda": "", "python": "/usr/bin/python3"}
        environment = {"PATH": f"{wrappers}:/venv/bin:{path}"}
        build_compilers.make_wrappers(wrappers, environment, params)

        def ask(name: str) -> str:
            search = {"PATH": environment["PATH"]}
            done = subprocess.run(
                ["/bin/sh", "-c", f"{name} -c a.c"],
                env=search, capture_output=True, text=True, check=True,
            )  # fmt: skip
            return done.stdout.strip()

        ask.path = environment["PATH"]  # type: ignore[attr-defined] # a fixture's answer
        return ask

    return make


def test_every_compiler_name_runs_the_chosen_gcc(made: Any) -> None:
    ask = made("10")
    assert ask("gcc") == ask("cc") == "gcc-10 10.5.0: -c a.c"
    assert ask("g++") == ask("c++") == "g++-10 10.5.0: -c a.c"
    assert ask("clang") == "clang: -c a.c"


def test_the_default_gcc_is_used_if_it_has_that_version(made: Any) -> None:
    assert made("9")("gcc") == "gcc 9.4.0: -c a.c"


def test_the_compiler_cache_comes_before_the_chosen_gcc(made: Any, node: Path) -> None:
    program(node / "bin", "ccache", 'echo "ccache: $*"')
    assert made("10", "ccache")("g++") == f"ccache: {node}/bin/g++-10 -c a.c"
    assert made("", "ccache")("gcc") == "ccache: -c a.c"  # by its name, which is a link to it


CCACHE_LOG = """\
# a.cpp
cache_miss
direct_cache_miss
# b.cpp
direct_cache_hit
local_storage_hit
# c.cpp
direct_cache_miss
preprocessed_cache_hit
# a.o
called_for_link
"""
SCCACHE_STATS = (
    '{"stats": {"cache_hits": {"counts": {"C/C++": 1, "CUDA": 1}},'
    ' "cache_misses": {"counts": {"C/C++": 1}}}}'
)


def test_files_from_the_cache_are_counted(build_compilers: ModuleType, node: Path) -> None:
    stats = node / "ccache.stats"
    environment = {"PATH": f"{node}/bin:/usr/bin:/bin", "CCACHE_STATSLOG": str(stats)}
    count = build_compilers.count_reused
    assert count({"cache": "ccache"}, environment) == (0, 0)  # an old ccache writes none
    stats.write_text(CCACHE_LOG)
    assert count({"cache": "ccache"}, environment) == (2, 1)
    assert count({"cache": "sccache"}, environment) == (0, 0)  # not installed
    for said, counted in ((SCCACHE_STATS, (2, 1)), ("[]", (0, 0)), ("sccache: error", (0, 0))):
        program(node / "bin", "sccache", f"echo '{said}'")
        assert count({"cache": "sccache"}, environment) == counted


def test_the_assembler_of_a_toolset_comes_first(made: Any, node: Path) -> None:
    assert made("10").path.split(":")[2] == f"{node}/bin"


def test_without_gcc_clang_is_used(
    toolchain: ModuleType, made: Any, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(node / "bin", "clang++", 'echo "clang++: $*"')
    assert made("")("gcc") == "gcc 9.4.0: -c a.c"  # it is not asked if gcc exists
    for name in ("gcc", "g++"):
        (node / "bin" / name).unlink()
    program(node / "bin", "make", "echo GNU Make 4.3")
    monkeypatch.setenv("PATH", f"{node}/bin")
    assert "compiler" not in toolchain.look("/none", "none", [], [])[1]
    ask = made("", path=f"{node}/bin")
    assert ask("gcc") == ask("cc") == "clang: -c a.c"
    assert ask("c++") == "clang++: -c a.c"
    (node / "bin" / "clang++").unlink()
    assert "compiler" in toolchain.look("/none", "none", [], [])[1]


@pytest.mark.parametrize("major", ["8", "11", "1"])
def test_a_missing_gcc_is_an_error(build_compilers: ModuleType, made: Any, major: str) -> None:
    with pytest.raises(
        build_compilers.BuildFailed, match=f"needs gcc {major} with its g"
    ) as caught:
        made(major)
    assert caught.value.fix == ["install-gcc", major]


def test_the_toolchain_role_finds_the_chosen_gcc(toolchain: ModuleType, node: Path) -> None:
    assert [toolchain.gcc_of(major) for major in ("9", "10", "11", "1")] == [
        "9.4.0",
        "10.5.0",
        "",
        "",
    ]
    found, missing = toolchain.look(
        python=str(node / "none"), cache="none", tools=[], gccs=["10", "11"]
    )
    assert found["gcc-10"] == "10.5.0"
    assert "gcc-11" in missing
    assert "gcc-10" not in missing


@pytest.mark.parametrize(
    ("family", "packages"),
    [
        ("debian", ["gcc-11", "g++-11"]),
        ("redhat", ["gcc-toolset-11-gcc", "gcc-toolset-11-gcc-c++"]),
        ("amazon", ["gcc11", "gcc11-c++"]),
        ("suse", ["gcc11", "gcc11-c++"]),
        ("alpine", None),
    ],
)
def test_every_family_names_the_packages_of_a_gcc(
    toolchain: ModuleType, family: str, packages: list[str] | None
) -> None:
    defaults = Path(__file__).parents[3] / "roles/toolchain/defaults/main.yml"
    table = yaml.safe_load(defaults.read_text())["toolchain_packages"][family]
    assert toolchain.names(table, ["gcc-11"], "/usr/bin/python3", {}).get("gcc-11") == packages


def test_the_gcc_name_of_amazon_linux_is_known(
    toolchain: ModuleType, made: Any, node: Path
) -> None:
    for name in ("gcc", "g++"):
        (node / "bin" / f"{name}-10").rename(node / "bin" / f"gcc10-{name}")
    assert toolchain.gcc_of("10") == "10.5.0"
    assert made("10")("c++") == "g++-10 10.5.0: -c a.c"


def test_a_toolset_is_found_by_its_folder(
    toolchain: ModuleType, build_compilers: ModuleType, made: Any, node: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    compilers(node / "toolset-98", "", "98.2.1")
    for module in (toolchain, build_compilers):
        monkeypatch.setattr(module, "TOOLSET", f"{node}/toolset-{{}}/gcc")
    assert toolchain.gcc_of("98") == "98.2.1"
    ask = made("98")
    assert ask("c++") == "g++ 98.2.1: -c a.c"
    assert ask.path.split(":")[2] == f"{node}/toolset-98"
