"""Read the files in which people list packages: requirements.txt, dependency groups and lock files.

In: requirements.txt, constraints.txt, pyproject.toml, uv.lock or pylock.toml. Out: a
`RequirementList`: what they name first, and what bounds the rest. uv cannot say that without an
index. No line is skipped silently: what cannot be honoured is an error with its file and line. It
does not quote the line, which may be of a file that was never meant to be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config
from fleetbuild.models._base import Frozen
from fleetbuild.plan.decide.packages import bracketed
from fleetbuild.plan.resolve.locked_files import Lock, read_lock, read_text, read_toml
from fleetbuild.store.sources import LONG_NUMBER
from fleetbuild.text import clean

_LONGEST = 1 << 16  # characters of a line, with the hashes of one version
_DEEPEST = 20  # files that name each other
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")  # as pip reads them
_SHA256 = re.compile(r"sha256[:=]([0-9a-f]{64})")
_REQUIREMENTS, _CONSTRAINTS = ("-r", "--requirement"), ("-c", "--constraint")
_EDITABLE = ("-e", "--editable")
_INDEXES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
_ARCHIVES = (".tar.gz", ".zip", ".whl")
_SCHEMES = ("git+", "http://", "https://", "file://")
_WHOLE = ("--all-groups", "--all-extras")  # a lock bounds also what its project asks for elsewhere
_FORMS = "Write NAME==VERSION, a range such as NAME>=1.2, NAME @ git+https://…, or a path."


class RequirementList(Frozen):
    """Packages, and what bounds their versions, as one or several files name them."""

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()  # name and version specifiers, with markers
    indexes: tuple[str, ...] = ()  # of --index-url, --extra-index-url and --find-links
    # Normalised name -> the sha256 of the files that are allowed for it.
    hashes: dict[str, tuple[str, ...]] = {}
    files: dict[str, tuple[str, ...]] = {}  # as they were named, by the option that names such
    places: dict[str, str] = {}  # normalised name -> "FILE, line 3", which asks for it first

    def __add__(self, other: RequirementList) -> RequirementList:
        hashes = dict(self.hashes)
        for name, known in other.hashes.items():
            hashes[name] = _once(*hashes.get(name, ()), *known)
        return RequirementList(
            requirements=_once(*self.requirements, *other.requirements),
            constraints=_once(*self.constraints, *other.constraints),
            indexes=_once(*self.indexes, *other.indexes),
            hashes=hashes,
            places={**other.places, **self.places},
        )


def listed_packages(config: Config, folder: Path) -> RequirementList:
    """Return what the files hold that fleetbuild.yml names; `folder` is where its paths begin."""
    return read_requirement_files(
        has_packages=bool(config.packages),
        requirements=config.requirements,
        constraints=config.constraints,
        lock=config.lock,
        groups=config.groups,
        folder=folder,
    )


def read_requirement_files(
    *,
    requirements: Sequence[str | Path] = (),
    constraints: Sequence[str | Path] = (),
    lock: str | Path | None = None,
    groups: Sequence[str] = (),
    has_packages: bool = False,
    folder: Path = Path(),
) -> RequirementList:
    """Return what these files hold together. Groups belong to the lock, else to pyproject.toml.

    A lock names the packages only if nothing else does: no file, no group and, by `has_packages`,
    no list. Else it only bounds versions.
    """
    found = RequirementList()
    for path in requirements:
        found += read_requirements(folder / path)
    for path in constraints:
        found += read_constraints(folder / path)
    locked = read_lock(folder / lock, _WHOLE) if lock is not None else None
    project = (locked.path if locked and locked.is_uv else folder / "x").parent / "pyproject.toml"
    for group in groups:
        found += _named(read_group(project, group), locked)
    if locked:
        if not (found.requirements or has_packages):
            found += _named(read_project(project), locked) if locked.is_uv else _all(locked)
        found += _bounds(locked)
    named = {"requirement": requirements, "constraint": constraints, "group": groups}
    files = {option: tuple(map(str, values)) for option, values in named.items() if values}
    files |= {"lock": (str(lock),)} if lock is not None else {}
    return found.model_copy(update={"files": files})


def read_requirements(path: Path) -> RequirementList:
    """Return the packages of a requirements.txt, and of the files that it names."""
    return _read_lines(path, _REQUIREMENTS, ())


def read_constraints(path: Path) -> RequirementList:
    """Return the constraints of a constraints.txt, and of the files that it names."""
    return _read_lines(path, _CONSTRAINTS, ())


def read_group(path: Path, group: str) -> tuple[str, ...]:
    """Return a dependency group of a pyproject.toml (PEP 735), else an extra of its project.

    The project's own dependencies come with an extra, as `pip install .[extra]` installs them.
    """
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist, in which the group {group} is looked for.",
            "Go to the project's folder, or name its uv.lock: --lock FILE, or lock: in"
            " fleetbuild.yml.",
        )
    document = read_toml(path)
    groups = _table(document, "dependency-groups")
    extras = _table(_table(document, "project"), "optional-dependencies")
    wanted = canonicalize_name(group)
    if wanted in map(canonicalize_name, groups):
        try:
            return resolve_dependency_groups(groups, group)
        except ExceptionGroup as problem:
            reason = clean(str(problem.exceptions[0]), limit=300)
            raise ConfigError(f"{path}: {reason}.", f"Correct the group {group}.") from None
    for name, texts in extras.items():
        if canonicalize_name(name) == wanted:
            return (*read_project(path), *_requirements_of(texts, path))
    known = ", ".join(sorted({*groups, *extras})) or "none"
    raise ConfigError(f"{path} has no dependency group {group}.", f"Its groups are: {known}.")


def read_project(path: Path) -> tuple[str, ...]:
    """Return the dependencies of a pyproject.toml's project."""
    return _requirements_of(_table(read_toml(path), "project").get("dependencies", []), path)


def _table(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _requirements_of(texts: Any, path: Path) -> tuple[str, ...]:
    try:
        return tuple(str(Requirement(text)) for text in texts)
    except (InvalidRequirement, TypeError):
        raise ConfigError(f"{path} lists no valid requirements.", "Correct its project.") from None


# --- Locks ---


def _named(texts: Iterable[str], lock: Lock | None) -> RequirementList:
    """Return these requirements, with a lock as it locks them."""
    if lock is None or not lock.is_uv:
        return RequirementList(requirements=tuple(texts))
    found: list[str] = []
    for requirement in map(Requirement, texts):
        name = canonicalize_name(requirement.name)
        meant = [package for package in lock.packages if package["name"] == name]
        if not meant and not requirement.marker:
            raise ConfigError(f"{lock.path} does not lock {name}.", "Lock it again.")
        found += [_locked_text(lock, package, requirement) for package in meant]
    return RequirementList(requirements=_once(*found))


def _all(lock: Lock) -> RequirementList:
    texts = (_locked_text(lock, each, Requirement(each["name"])) for each in lock.packages)
    return RequirementList(requirements=tuple(texts))


def _locked_text(lock: Lock, package: dict[str, Any], wanted: Requirement) -> str:
    name = package["name"] + bracketed(sorted(wanted.extras))
    vcs, folder = package.get("vcs"), package.get("directory")
    if vcs and vcs["type"] == "git":
        text = f"{name} @ git+{vcs.get('url')}@{vcs['commit-id']}"
    elif folder:
        text = f"{name} @ {(lock.path.parent / folder['path']).absolute()}"
    elif "version" in package:
        text = f"{name}=={package['version']}"
    else:
        raise ConfigError(f"{lock.path} has no version of {name}.", "Lock it again.")
    markers = [str(marker) for marker in (package.get("marker"), wanted.marker) if marker]
    return " ; ".join([text, *([" and ".join(f"({each})" for each in markers)] if markers else [])])


def _bounds(lock: Lock) -> RequirementList:
    """Return every version and every hash of a lock."""
    found = RequirementList()
    for package in lock.packages:
        files = [package.get("sdist"), package.get("archive"), *package.get("wheels", ())]
        hashes = tuple(
            file["hashes"]["sha256"] for file in files if file and "sha256" in file["hashes"]
        )
        text = f"{package['name']}=={package.get('version')}"
        text += f" ; {package['marker']}" if "marker" in package else ""
        bounds = "version" in package and not {"vcs", "directory"} & package.keys()
        found += RequirementList(
            constraints=(text,) if bounds else (),
            hashes={package["name"]: hashes} if hashes else {},
        )
    return found


# --- requirements.txt and constraints.txt ---


def _read_lines(path: Path, kind: tuple[str, ...], above: tuple[Path, ...]) -> RequirementList:
    path = path.absolute()
    if path in above or len(above) > _DEEPEST:
        raise ConfigError(f"{path} names itself, by way of another file.", "Remove that line.")
    found = RequirementList()
    for number, line in _logical_lines(read_text(path)):
        found += _line(line, kind, f"{path}, line {number}", (*above, path))
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, with its number: joined, without comments."""
    joined, first = "", 0
    for number, raw in enumerate((*text.splitlines(), ""), 1):
        first = first or number
        goes_on = raw.endswith("\\") and not raw.lstrip().startswith("#")
        joined += raw[:-1] + " " if goes_on else raw
        if goes_on and len(joined) < _LONGEST:
            continue
        if line := re.split(r"(?:^|\s)#", joined, maxsplit=1)[0].strip():
            yield first, _VARIABLE.sub(lambda name: os.environ.get(name[1]) or name[0], line)
        joined, first = "", 0


def _line(line: str, kind: tuple[str, ...], place: str, above: tuple[Path, ...]) -> RequirementList:
    if len(line) >= _LONGEST:
        raise ConfigError(f"{place} is too long.", "Name a file that lists packages.")
    folder = above[-1].parent
    option, value = _option(line)
    if option in (*_REQUIREMENTS, *_CONSTRAINTS):
        path = _named_file(folder, value, place, above[0].parent)
        return _read_lines(path, _CONSTRAINTS if option in _CONSTRAINTS else kind, above)
    if option in _INDEXES and value:
        return RequirementList(indexes=(value if "://" in value else str(_path(folder, value)),))
    if option and option not in _EDITABLE:
        raise ConfigError(
            f"{place}: the option {option} has no meaning for fleetbuild.",
            "Remove the line; fleetbuild.yml holds such settings (docs/reference/config.md).",
        )
    return _package(value if option else line, kind, place, folder)


def _option(line: str) -> tuple[str, str]:
    """Return the option that this line is, and its value; ("", "") for a requirement."""
    match = re.match(r"--?[a-z][a-z-]*(?=[=\s]|$)", line)
    if match is None:
        return ("-" if line.startswith("-") else "", "")
    return match[0], line[match.end() :].lstrip("= \t").strip("\"'")


def _package(line: str, kind: tuple[str, ...], place: str, folder: Path) -> RequirementList:
    text, *options = re.split(r"\s--(?=[a-z])", line)
    hashes = tuple(_SHA256.findall(" ".join(options)))
    if not all(each.startswith(("hash=", "hash ")) for each in options):
        raise ConfigError(
            f"{place} has an option that has no meaning for fleetbuild.",
            "Remove every option but --hash from the line.",
        )
    if options and not hashes:
        raise ConfigError(f"{place} has no sha256 among its hashes.", "Add one.")
    text, name = _requirement(text.strip(), folder, place)
    if hashes and name is None:
        raise ConfigError(f"{place} has a hash for a source without a name.", "Write NAME @ PATH.")
    allowed = {name: hashes} if name and hashes else {}
    if kind == _REQUIREMENTS:
        places = {name: place} if name else {}
        return RequirementList(requirements=(text,), hashes=allowed, places=places)
    if name is None or "@" in text or "[" in text:
        raise ConfigError(
            f"{place} cannot bound a version.",
            "A constraint is a name and a range, such as NAME<2.",
        )
    return RequirementList(constraints=(text,), hashes=allowed)


def _named_file(folder: Path, value: str, place: str, first: Path) -> Path:
    """Return the file that a line names. A file from elsewhere could be one of another purpose."""
    path = _path(folder, value)
    homes = (first.resolve(), Path.cwd().resolve())
    if not value or "://" in value or not any(map(path.resolve().is_relative_to, homes)):
        raise ConfigError(
            f"{place} names no file below {first} or below the current folder.",
            "Name it by its own option, or start in a folder above both.",
        )
    return path


def _requirement(text: str, folder: Path, place: str) -> tuple[str, str | None]:
    """Return a requirement with an absolute path, if it has one, and its name, if it has one."""
    if text.startswith(_SCHEMES):
        return text, None
    if text.startswith((".", "/", "~")) or (text.endswith(_ARCHIVES) and "@" not in text):
        path, bracket, extras = text.partition("[")
        return f"{_path(folder, path)}{bracket}{extras}", None
    try:
        requirement = Requirement("" if LONG_NUMBER.search(text) else text)
    except InvalidRequirement:
        raise ConfigError(f"{place} is not a requirement.", _FORMS) from None
    if requirement.url and not requirement.url.startswith(_SCHEMES):
        requirement.url = str(_path(folder, requirement.url))
    return str(requirement), str(canonicalize_name(requirement.name))


def _path(folder: Path, text: str) -> Path:
    return (folder / Path(text).expanduser()).absolute()


def _once(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
