"""The compilers of a build, and their compiler cache. Standard library only."""

import json
import os
import shutil
import subprocess

from .wheel_inputs import BuildFailed

OTHER_COMPILERS = ("clang", "clang++", "nvcc")
COMPILERS = ("cc", "c++", "gcc", "g++", *OTHER_COMPILERS)
CCACHE_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
TOOLSET = "/opt/rh/gcc-toolset-{}/root/usr/bin/gcc"


def make_wrappers(folder, environment, params):
    """Put compilers that use the cache into a folder, first in PATH, so that builds find them."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    search = environment["PATH"].partition(":")[2]
    cache = shutil.which(params["cache"], path=search)
    chosen = chosen_compilers(params["gcc"], search)
    if cache is None and not chosen:  # slower without a cache, and right all the same
        return
    for name in [*COMPILERS, *pythons_own_compilers(params["python"])]:
        gcc = "" if name in OTHER_COMPILERS else "g++" if "+" in name else "gcc"
        beside = chosen.get(gcc)
        compiler = beside or shutil.which(name, path=search)
        if compiler is None or os.path.lexists(os.path.join(folder, name)):
            continue
        if params["cache"] == "ccache" and cache and not beside:
            os.symlink(cache, os.path.join(folder, name))
            continue
        command = " ".join(f'"{program}"' for program in (cache, compiler) if program)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {command} "$@"\n')
        os.chmod(os.path.join(folder, name), 0o755)
    if cache and params["cuda"]:
        # CUDACXX is the toolkit's own, by which CMake finds the toolkit; torch asks CUDA_HOME.
        environment.setdefault("CMAKE_CUDA_COMPILER_LAUNCHER", cache)
        environment.setdefault("PYTORCH_NVCC", os.path.join(folder, "nvcc"))
    if chosen:  # its own assembler and linker, if it has them
        path = environment["PATH"].split(":")
        environment["PATH"] = ":".join([*path[:2], os.path.dirname(chosen["gcc"]), *path[2:]])


def count_reused(params, environment):
    """Return (files from the compiler cache, files compiled); zeros if the cache tells nothing."""
    if params["cache"] == "ccache":
        try:
            with open(environment["CCACHE_STATSLOG"], encoding="utf-8", errors="replace") as log:
                said = log.read().split("\n")
        except OSError:
            return 0, 0
        return sum(map(said.count, CCACHE_HITS)), said.count("cache_miss")
    if params["cache"] != "sccache":
        return 0, 0
    sccache = shutil.which("sccache", path=environment["PATH"])
    if sccache is None:
        return 0, 0
    ask = [sccache, "--show-stats", "--stats-format", "json"]
    said = subprocess.run(
        ask, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False
    ).stdout
    try:
        stats = json.loads(said.decode("utf-8"))["stats"]
        hits, misses = (
            sum(stats[name]["counts"].values()) for name in ("cache_hits", "cache_misses")
        )
    except (ValueError, LookupError, TypeError, AttributeError):  # of another version
        return 0, 0
    return hits, misses


def chosen_compilers(major, search):
    """Return the programs to use as gcc and g++, if they have other names: the wanted major
    version, or clang if gcc is not installed."""
    if not major:
        clang = [shutil.which(name, path=search) for name in ("clang", "clang++")]
        there = all(shutil.which(name, path=search) for name in ("gcc", "g++"))
        return {} if there or not all(clang) else dict(zip(("gcc", "g++"), clang))
    for gcc in ("gcc", f"gcc-{major}", f"gcc{major}-gcc", TOOLSET.format(major)):
        pair = [shutil.which(name, path=search) for name in (gcc, _plus(gcc))]
        if all(pair) and first_line(pair[0], "-dumpversion").split(".")[0] == major:
            return dict(zip(("gcc", "g++"), pair))
    raise BuildFailed(
        f"This target needs gcc {major} with its g++, but it was not found on this node.",
        ["install-gcc", major],
    )


def pythons_own_compilers(python):
    """Return the compilers that setuptools calls, such as x86_64-linux-gnu-gcc.

    They are the ones that this Python was compiled with.
    """
    ask = "from sysconfig import get_config_vars as v; print(*v('CC', 'CXX'), sep='\\n')"
    said = subprocess.run(
        [python, "-I", "-c", ask],
        stdout=subprocess.PIPE,
        universal_newlines=True,
        check=False,
    ).stdout
    commands = [line.split()[0] for line in said.split("\n") if line]
    return [name for name in commands if "/" not in name]


def _plus(gcc):
    """Return g++-11 for gcc-11."""
    return "g++".join(gcc.rsplit("gcc", 1))


def first_line(*command):
    """Return the first line that a command prints; empty if it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return done.stdout.decode("utf-8", "replace").partition("\n")[0].strip()
