"""Resolve dependencies of a target or a build with uv, for another machine's platform.

In: a `LockRequest`. Out: a `Resolution` from uv's pylock.toml (PEP 751). uv builds nothing: it gets
the requirements of every package that comes as a source, and takes wheels of all other packages.

uv's exit code says whether the requirements do not fit (1) or uv could not ask (2). Its messages
give a problem its words, never its kind, so that a newer uv may use other words.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetbuild.errors import ResolutionError
from fleetbuild.models import LockedFile
from fleetbuild.plan.decide.packages import bracketed
from fleetbuild.plan.decide.resolution import LockRequest, Resolution, StaticMetadata
from fleetbuild.plan.resolve.locked_files import locked_file, locked_wheel
from fleetbuild.programs import run_program, uv_program
from fleetbuild.store.address_secrets import hide
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.text import clean
from fleetbuild.workers import Workers

_MANYLINUX = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)  # glibc minors that uv knows
_DEADLINE = 300
_AT_ONCE = 4
_ROUNDS = 5
_PROJECT = "fleetbuild-requirements"
_ELSEWHERE = {"UV_PROJECT", "UV_WORKING_DIR", "UV_WORKING_DIRECTORY"}
# uv says the first for 401, and the second for 403, with which some indexes also answer for a
# package that they do not have.
_REFUSED_LOGIN = re.compile(
    r"An index(?: URL)? \((\S+?)\) (?:could not be queried[^(]*\((\d{3} [A-Za-z ]+)\)"
    r"|returned an? (40[13] [A-Za-z ]+?) error)"
)
_MOST_SAID = 10_000  # characters of a message, with names that strangers chose
_NO_SOLUTION, _LATE = 1, 124  # exit codes of uv, and of one that was ended
_ABSENT = re.compile(r"([\w.-]+) was not found in the (package registry|provided)")


def resolve_all(
    requests: Iterable[LockRequest], settings: IndexSettings
) -> dict[LockRequest, Resolution]:
    """Resolve several requests; equal requests are resolved once."""
    return _each_once(requests, lambda request: resolve(request, settings))


def resolve(request: LockRequest, settings: IndexSettings) -> Resolution:
    """Return the locked dependencies for a platform, or the problem that prevents a lock.

    Raises if a package to be built is not on the index.
    """
    platform = _platform(request)
    if problem := _problem_of_texts(request):
        return problem
    if platform is None:
        return Resolution(
            problem=f"{request.libc.family} {request.libc.floor} on {request.arch} is older than "
            "every platform that wheels are published for (glibc 2.17).",
            fix="Leave these nodes out with fleetbuild_skip: true, or update their system.",
        )
    own: set[str] = set()  # packages of the closure that come from an index of their own
    for _ in range(_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
            done = _uv(request, platform, settings, Path(folder), own=own)
            if done.returncode != 0:
                break
            lock = tomllib.loads(done.stdout)
            names = {canonicalize_name(package["name"]) for package in lock.get("packages", ())}
            found = {str(name) for name in names & settings.package_index.keys()}
            if found <= own:
                return _answer(request, lock, Path(folder))
            own |= found
    return _refused(request, done, settings, request.sources)


def find_wheels(
    requests: Iterable[LockRequest], settings: IndexSettings, *, must_exist: bool = False
) -> dict[LockRequest, Resolution]:
    """Return the published wheels of the named packages, ignoring their dependencies.

    With `must_exist`, raise if no index has such a version, not even for another machine.
    """
    return _each_once(requests, lambda request: locate(request, settings, must_exist=must_exist))


def _each_once(
    requests: Iterable[LockRequest], ask: Callable[[LockRequest], Resolution]
) -> dict[LockRequest, Resolution]:
    distinct = list(dict.fromkeys(requests))
    with Workers(_AT_ONCE) as pool:
        return dict(zip(distinct, pool.map(ask, distinct), strict=True))


def locate(
    request: LockRequest, settings: IndexSettings, *, must_exist: bool = False
) -> Resolution:
    """Return the files of the packages in a request, without resolving their dependencies."""
    named = request.sources
    if must_exist:
        named += tuple(Requirement(each).name for each in request.requirements)
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        done = _uv(request, _platform(request) or "linux", settings, Path(folder), options=_ALONE)
        if done.returncode == 0:
            return _answer(request, tomllib.loads(done.stdout), Path(folder))
    return _refused(request, done, settings, named)


def newest_version(name: str, settings: IndexSettings, python: str = "") -> str | None:
    """Return the newest version of a package on the first index that has it, or None if unknown.

    A later index may have a newer one, which anybody may have put there. Without a Python, the
    newest for fleetbuild's own one.
    """
    words = ("--python-version", python) if python else ()
    return _versions([name], settings, (), words)[1].get(canonicalize_name(name))


def pick_versions(
    ranges: Mapping[str, str], constraints: Iterable[str], python: str, settings: IndexSettings
) -> dict[str, str]:
    """Return the newest version of each package in its range (name -> specifier), for a Python.

    Dependencies are not looked at: nothing of a package is run or read for this.
    """
    wanted = [f"{name}{specifier}" for name, specifier in ranges.items()]
    bounds = (*constraints, *settings.excluded)
    done, found = _versions(wanted, settings, bounds, ("--python-version", python))
    if found.keys() >= ranges.keys():
        return found
    said, named = _said(done.stderr), ", ".join(wanted)
    _refuse_unknown([*ranges], said, settings, python)
    why = _unreachable(done.stderr) or _short(said) or "uv says nothing"
    raise ResolutionError(
        f"No version can be chosen for {named}: {why.rstrip('.')}.",
        "Check names, ranges and constraints, or whether the index answers: fleetbuild doctor.",
    )


def _versions(
    wanted: Sequence[str],
    settings: IndexSettings,
    bounds: Sequence[str] = (),
    words: Iterable[str] = (),
) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Return uv's answer about these packages alone, and the versions in it by name."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        done = _run((*_ALONE, *words), wanted, settings, Path(folder), bounds=bounds)
    packages = tomllib.loads(done.stdout).get("packages", ()) if done.returncode == 0 else ()
    return done, {canonicalize_name(one["name"]): str(one.get("version")) for one in packages}


def try_index(settings: IndexSettings, within: int) -> str:
    """Return why the package index does not answer; empty if it does."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        done = _run(_ALONE, ["packaging"], settings, Path(folder), within=within)
    return (done.stderr.strip() or "no reason given") if done.returncode else ""


_QUIETLY = ("--format", "pylock.toml", "--no-header", "--color", "never", "-q")
_ALONE = ("--no-deps",)  # so uv reads no metadata, and builds and runs nothing of a package


def _uv(
    request: LockRequest,
    platform: str,
    settings: IndexSettings,
    folder: Path,
    *,
    options: Iterable[str] = (),
    own: Iterable[str] = (),
) -> subprocess.CompletedProcess[str]:
    words = [
        *options,
        "--python-version", request.python_version,
        "--python-platform", platform,
        "--only-binary", ":all:",
    ]  # fmt: skip
    if request.pytorch:  # torch and its companions come from PyTorch's index for this CUDA
        words += ["--torch-backend", request.pytorch]
    for name in request.sources:
        words += ["--no-binary", name]
    bounds = (*request.constraints, *settings.excluded, *settings.bounds)
    wanted = [
        *request.requirements,
        *sorted(own),  # an index of its own serves a package only where it is named
        *(_static_metadata_of(each, folder) for each in request.static_metadata),
    ]
    return _run(words, wanted, settings, folder, bounds=bounds)


def _problem_of_texts(request: LockRequest) -> Resolution | None:
    """Return the problem of requirements that packages state, or None.

    They become lines of a requirements file, where an option could name another index and an
    address could name a source that uv would have to build.
    """
    if request.sources:
        names = ", ".join(request.sources)
        return Resolution(
            problem=f"The run-time requirements of {names} are unknown.",
            fix=f"State it in a recipe for {names} beside fleetbuild.yml, with requires: [...].",
        )
    texts: list[tuple[str | None, str]] = [(None, each) for each in request.requirements]
    texts += [(known.name, each) for known in request.static_metadata for each in known.requires]
    for name, text in texts:
        by = f"{name} requires" if name else "It requires"
        try:
            requirement = Requirement(text if text.isprintable() else "")
        except InvalidRequirement:
            return Resolution(
                problem=f"{by} {text[:200]!r}, which is not a valid requirement.",
                fix="State the right one in a recipe beside fleetbuild.yml.",
            )
        if requirement.url:
            return Resolution(
                problem=f"{by} {requirement.name} from an address, which cannot be locked.",
                fix=f"State {requirement.name}==VERSION in a recipe beside fleetbuild.yml, and add "
                "the index that has it under index:.",
            )
    return None


def _static_metadata_of(package: StaticMetadata, folder: Path) -> str:
    """Write a wheel with only the package's requirements; return a requirement on it."""
    stem = f"{package.name.replace('-', '_')}-{package.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    headers = ["Metadata-Version: 2.1", f"Name: {package.name}", f"Version: {package.version}"]
    headers += [f"Requires-Python: {package.requires_python}"] if package.requires_python else []
    headers += [f"Provides-Extra: {each}" for each in package.extras]
    headers += [f"Requires-Dist: {each}" for each in package.requires]
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", "\n".join(headers) + "\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return f"{package.name}{bracketed(package.extras)} @ {path.absolute().as_uri()}"


def _run(
    words: Iterable[str],
    wanted: Sequence[str],
    settings: IndexSettings,
    folder: Path,
    *,
    bounds: Sequence[str] = (),
    within: int = _DEADLINE,
) -> subprocess.CompletedProcess[str]:
    _write_project(wanted, settings, folder)
    (folder / "constraints.txt").write_text("\n".join(bounds) + "\n")
    command = [
        uv_program(), "pip", "compile", "pyproject.toml", *_QUIETLY, *words, *settings.arguments,
        "--constraints", "constraints.txt", "--no-python-downloads",
        "--python", sys.executable,  # uv would run the Python of a .venv in any parent folder
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    environment |= settings.environment
    done = subprocess.CompletedProcess[str](command, _NO_SOLUTION, "", "")
    for strategy in dict.fromkeys((settings.strategy, "first-index")):
        try:
            tried = run_program(
                [*command, *_without_cache(environment)],
                within=within,
                cwd=folder,  # so that no project's uv settings apply
                env={**environment, "UV_INDEX_STRATEGY": strategy},
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, _LATE, "", f"timed out after {within} s")
        told = tried.stderr[:_MOST_SAID]
        said = [hide(text, settings.tokens) for text in (tried.stdout, told)]
        # By any other strategy, uv goes on silently where an index refuses the login.
        if strategy == settings.strategy or _REFUSED_LOGIN.search(_said(said[1])):
            done = subprocess.CompletedProcess(command, tried.returncode, *said)
        if done.returncode != _NO_SOLUTION:
            break
    return done


def _without_cache(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the option for a uv that cannot write its cache, such as in a read-only HOME."""
    above = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(environment.get("UV_CACHE_DIR") or above / "uv")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ("--no-cache",)
    return () if os.access(cache, os.W_OK) else ("--no-cache",)


def _write_project(wanted: Sequence[str], settings: IndexSettings, folder: Path) -> None:
    """Write the requirements as a project, where uv lets a package have an index of its own.

    uv looks for settings and for a workspace in every parent folder, in /tmp as well, where any
    user can write. It stops at a project that is a workspace and has settings, even empty ones.
    """
    sources = {address: name for name, address in settings.sources.items()}
    lines = ["[project]", f'name = "{_PROJECT}"', 'version = "0"']
    lines += ["dependencies = [", *(f"  {json.dumps(each)}," for each in wanted), "]"]
    lines += ["[tool.uv.workspace]", "[tool.uv.sources]"]
    for package, address in settings.package_index.items():
        lines.append(f"{package} = {{index = {json.dumps(sources[address])}}}")
    for address, name in sources.items():
        flat = "://" not in address or address.endswith(".html")
        lines += ["[[tool.uv.index]]", f'name = "{name}"', f"url = {json.dumps(address)}"]
        lines += ["explicit = true", *(['format = "flat"'] if flat else [])]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")


def install_wheels(wheels: Sequence[Path], folder: Path, within: int = _DEADLINE) -> str:
    """Unpack these wheels into a folder as pip would; return uv's error, else ""."""
    done = run_program(
        [uv_program(), "pip", "install", "--quiet", "--no-deps", "--no-index", "--offline",
         "--no-config", "--no-python-downloads", "--only-binary", ":all:",
         "--python", sys.executable, "--target", str(folder), *_without_cache(os.environ),
         *map(str, wheels)],
        within=within,
    )  # fmt: skip
    return clean(done.stderr, limit=300) or "no reason given" if done.returncode else ""


def _platform(request: LockRequest) -> str | None:
    """Return the newest platform known to uv that the target supports."""
    if request.libc.family == "musl":
        return f"{request.arch}-unknown-linux-musl"
    major, minor = (int(part) for part in f"{request.libc.floor}.0".split(".")[:2])
    known = [step for step in _MANYLINUX if (2, step) <= (major, minor)]
    return f"{request.arch}-manylinux_2_{known[-1]}" if known else None


def _answer(request: LockRequest, lock: dict[str, Any], folder: Path) -> Resolution:
    wheels: list[LockedFile] = []
    sources: list[LockedFile] = []
    mine = {canonicalize_name(name) for name in request.sources}
    static = {canonicalize_name(each.name) for each in request.static_metadata}
    for package in lock.get("packages", ()):
        if canonicalize_name(package["name"]) in static:
            continue
        if canonicalize_name(package["name"]) in mine:
            files = [package[kind] for kind in ("sdist", "archive") if kind in package]
            found = files and locked_file(package, files[0], folder)
            if found:
                sources.append(found)
        elif found := locked_wheel(package, request.python, request.arch, request.libc, folder):
            wheels.append(found)
        else:
            return Resolution(
                problem=f"{package['name']} {package.get('version', '')} has no wheel with a "
                f"known hash for {machine_of(request)}.",
                fix=f"Build it too: add {package['name']}==VERSION under packages:, or choose "
                "other versions.",
            )
    return Resolution(wheels=tuple(sorted(wheels, key=lambda file: file.name)),
                      sources=tuple(sorted(sources, key=lambda file: file.name)))  # fmt: skip


def _refused(
    request: LockRequest,
    done: subprocess.CompletedProcess[str],
    settings: IndexSettings,
    named: Sequence[str],
) -> Resolution:
    """Return the problem that uv states; raise if an index lacks one of the named packages."""
    said = _said(done.stderr)
    if _is_unanswered(done):
        return Resolution(
            problem=_unreachable(done.stderr)
            or f"No package index could be reached: {_short(said)}",
            fix="Check the network, or add a reachable index under index: in "
            "fleetbuild.yml, then plan again.",
            offline=True,
        )
    if done.returncode < 0:  # such as by its limit of memory: one package may require 300,000
        raise ResolutionError(
            f"Signal {-done.returncode} ended uv while it resolved"
            f" {', '.join(request.requirements)}: {_short(said)}.",
            "Look at what these packages require, and leave out the one that requires too many.",
        )
    if done.returncode != _NO_SOLUTION:  # such as a folder of find-links that is not there
        raise ResolutionError(
            f"No package index can be read: {_short(said)}.",
            "Correct its settings: under index: in fleetbuild.yml, in UV_FIND_LINKS (folders"
            " separated by commas) or in uv.toml. Then plan again.",
        )
    _refuse_unknown(named, said, settings, request.python_version)
    if request.sources and re.search(r"has no (usable )?source distribution", said):
        return Resolution(
            problem=f"No sdist was found in {settings.asked}.",
            fix="Name a source tree for each: --package 'NAME @ ./path'. If another index has the "
            "sdist: package_index: {NAME: ADDRESS} in fleetbuild.yml.",
        )
    first = re.search(r"`([\w.-]+)` was found on (\S+), but", said)
    absent = _ABSENT.search(said)
    if absent and f"you require {absent[1]}" not in said:
        absent = None  # a dependency: nobody has spelled it here
    return Resolution(
        problem=f"No set of dependencies in {settings.places} fits {machine_of(request)}:"
        f" {_short(said)}"
        + (f" {first[1]} is on {first[2]}, the first index that has it." if first else ""),
        fix=f"Where {first[1]} is to come from another index, name that in fleetbuild.yml: "
        f"package_index: {{{first[1]}: ADDRESS}}."
        if first
        else f"Check the spelling of {absent[1]}, or add the index that has it under index: in "
        "fleetbuild.yml."
        if absent
        else "Choose other versions, or have a dependency without a wheel built too: name it under "
        "packages:. If a later index has the wheel, name that in fleetbuild.yml: package_index: "
        "{NAME: ADDRESS}.",
    )


def _is_unanswered(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether an index gave no answer. uv then names its address."""
    if done.returncode == _NO_SOLUTION:
        return os.environ.get("UV_OFFLINE", "").lower() in ("1", "true")
    return done.returncode == _LATE or "://" in done.stderr


def _said(stderr: str) -> str:
    """Return what uv says, in one line and about the user's own requirements."""
    said = " ".join(re.sub(r"[^\x00-\x7f]|cause:", " ", stderr).split())
    return said.replace(f"{_PROJECT} depends on", "you require")


def _unreachable(stderr: str) -> str:
    """Return which address gave no answer, with the last of uv's causes; empty if none is named."""
    address = re.search(r"Failed to fetch: `?([^\s`]+)", stderr)
    if address is None:
        return ""
    causes = re.findall(r"(?:cause|Caused by): (.+)", stderr[address.end() :])
    last = f": {causes[-1].partition(' for url')[0].strip()}" if causes else ""
    what = "answers with an error" if "HTTP status" in last else "cannot be reached"
    return f"The package index at {address[1]} {what}{last}"


def _refuse_unknown(named: Sequence[str], said: str, settings: IndexSettings, python: str) -> None:
    if refused := _REFUSED_LOGIN.search(said):
        why = f"refuses the login: {refused[2]}" if refused[2] else f"answers {refused[3]}"
        raise ResolutionError(
            f"The package index at {refused[1]} {why}.",
            "Correct its user, password or token: under index: in fleetbuild.yml, in the "
            "environment or in ~/.netrc."
            + ("" if refused[2] else " Some indexes answer so if they do not have the package."),
        )
    mine = {canonicalize_name(name): name for name in named}
    if (match := re.search(r"there is no version of ([\w.-]+)==([^\s,]+)", said)) and (
        name := mine.get(canonicalize_name(match[1]))
    ):
        newest = newest_version(name, settings, python)
        raise ResolutionError(
            f"{name} {match[2]} is not on the index"
            + (f"; the newest on the first index that has it is {newest}." if newest else "."),
            f"If you mean this {name}, ask for {name}=={newest}; else check the spelling."
            if newest
            else "Ask for another version.",
        )
    if (match := _ABSENT.search(said)) and (name := mine.get(canonicalize_name(match[1]))):
        raise ResolutionError(
            f"The package {name} is not on the index.",
            "Check its spelling, or add the index that has it under index: in fleetbuild.yml.",
        )


def machine_of(request: LockRequest) -> str:
    """Return the machine of a request: Python 3.11 (cp311) on x86_64 with glibc 2.36."""
    python = ".".join(request.python_version.split(".")[:2])
    libc = f"{request.libc.family} {request.libc.floor}"
    return f"Python {python} ({request.python}) on {request.arch} with {libc}"


def _short(said: str) -> str:
    text = re.sub(r"^error: ", "", said).replace(
        "No solution found when resolving dependencies", ""
    )
    text = re.sub(r"\s*hint:.*", "", text).strip(" :")
    text = text.replace(", we can conclude that your requirements are unsatisfiable", "")
    return text if len(text) <= 400 else text[:400].rsplit(" ", 1)[0] + " …"
