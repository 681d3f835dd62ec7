"""Read the files in which people list packages: requirements.txt, dependency groups and lock files.

In: requirements.txt, constraints.txt, pyproject.toml, uv.lock or pylock.toml. Out: a
`RequirementList`, in which every requirement is one text: PEP 508, or a path or address. No line is
skipped silently: what cannot be honoured is an error with its file and line.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config
from fleetbuild.models._base import Frozen

_MOST_BYTES = 32 << 20  # a lock file of thousands of packages has a few megabytes
_DEEPEST = 20  # files that name each other
_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")  # as pip reads them
_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
_FILES = {"-r": "requirements", "--requirement": "requirements",
          "-c": "constraints", "--constraint": "constraints"}  # fmt: skip
_INDEXES = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links"}
_ARCHIVES = (".tar.gz", ".zip", ".whl")
_SCHEMES = ("git+", "http://", "https://", "file://")


class RequirementList(Frozen):
    """Packages, and what bounds their versions, as one or several files name them."""

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()  # name and version specifiers, with markers
    indexes: tuple[str, ...] = ()  # of --index-url, --extra-index-url and --find-links
    # Normalised name -> the sha256 of the files that are allowed for it.
    hashes: dict[str, tuple[str, ...]] = {}

    def __add__(self, other: RequirementList) -> RequirementList:
        hashes = dict(self.hashes)
        for name, known in other.hashes.items():
            hashes[name] = tuple(dict.fromkeys((*hashes.get(name, ()), *known)))
        return RequirementList(
            requirements=_once(*self.requirements, *other.requirements),
            constraints=_once(*self.constraints, *other.constraints),
            indexes=_once(*self.indexes, *other.indexes),
            hashes=hashes,
        )


def listed_packages(config: Config, folder: Path) -> RequirementList:
    """Return what the files hold that fleetbuild.yml names; `folder` is where its paths begin."""
    return read_requirement_files(
        others=bool(config.packages),
        requirements=config.requirements,
        constraints=config.constraints,
        lock=config.lock,
        groups=config.groups,
        folder=folder,
    )


def read_requirement_files(
    *,
    requirements: Iterable[str | Path] = (),
    constraints: Iterable[str | Path] = (),
    lock: str | Path | None = None,
    groups: Iterable[str] = (),
    others: bool = False,
    folder: Path = Path(),
) -> RequirementList:
    """Return what these files hold together. Groups belong to the lock, else to pyproject.toml.

    A lock names the packages only if nothing else does: no file, no group and no `others`. Else it
    only bounds versions.
    """
    found = RequirementList()
    for path in requirements:
        found += read_requirements(folder / path)
    for path in constraints:
        found += read_constraints(folder / path)
    groups = tuple(groups)
    uv_lock = lock is not None and Path(lock).name != "pylock.toml"
    for group in groups:
        found += (
            read_lock(folder / str(lock), group)
            if uv_lock
            else read_group(folder / "pyproject.toml", group)
        )
    if lock is not None and not (groups and uv_lock):
        locked = read_lock(folder / lock)
        if found.requirements or others:
            locked = locked.model_copy(update={"requirements": ()})
        found += locked
    return found


def read_requirements(path: Path) -> RequirementList:
    """Return the packages of a requirements.txt, and of the files that it names."""
    return _read_lines(path, "requirements", ())


def read_constraints(path: Path) -> RequirementList:
    """Return the constraints of a constraints.txt, and of the files that it names."""
    return _read_lines(path, "constraints", ())


def read_group(path: Path, group: str) -> RequirementList:
    """Return a dependency group of a pyproject.toml (PEP 735), else an extra of its project.

    The project's own dependencies come with an extra, as `pip install .[extra]` installs them.
    """
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist, in which the group {group} is looked for.",
            "Name a uv.lock that has the group: --lock FILE, or lock: in fleetbuild.yml.",
        )
    document = _toml(path)
    groups = {str(canonicalize_name(name)): name for name in _table(document, "dependency-groups")}
    project = _table(document, "project")
    extras = {canonicalize_name(key): key for key in _table(project, "optional-dependencies")}
    wanted = canonicalize_name(group)
    if wanted in groups:
        texts = list(_group(document["dependency-groups"], groups, wanted, path, ()))
    elif wanted in extras:
        extra = project["optional-dependencies"][extras[wanted]]
        texts = [*_texts(project.get("dependencies"), path), *_texts(extra, path)]
    else:
        known = ", ".join(sorted({*groups.values(), *extras.values()})) or "none"
        raise ConfigError(f"{path} has no dependency group {group}.", f"Its groups are: {known}.")
    return RequirementList(requirements=_once(*texts))


def read_project(path: Path) -> RequirementList:
    """Return the dependencies of a pyproject.toml's project."""
    project = _table(_toml(path), "project")
    return RequirementList(requirements=tuple(_texts(project.get("dependencies"), path)))


class Lock(NamedTuple):
    """The packages of a uv.lock or a pylock.toml, as they stand there."""

    path: Path
    packages: list[dict[str, Any]]
    is_pylock: bool


def parse_lock(path: Path) -> Lock:
    """Return the content of a uv.lock or pylock.toml."""
    document = _toml(path)
    is_pylock = "lock-version" in document
    is_uv = isinstance(document.get("version"), int) and isinstance(document.get("package"), list)
    if not is_pylock and not is_uv:
        raise ConfigError(
            f"{path} is neither a uv.lock nor a pylock.toml.",
            "Name one of them, or a requirements file with -r.",
        )
    packages = document.get("packages" if is_pylock else "package")
    return Lock(path, list(_tables(packages, path)), is_pylock)


def read_lock(path: Path, group: str | None = None) -> RequirementList:
    """Return the packages of a uv.lock or pylock.toml, and every version in it as a constraint.

    A uv.lock gives the direct dependencies of its project, a pylock.toml gives everything that it
    lists. `group` names a dependency group of a uv.lock instead.
    """
    lock = parse_lock(path)
    if not lock.is_pylock:
        return _uv_lock(lock, group)
    if group is not None:
        raise ConfigError(
            f"{path} is a pylock.toml, which has no group {group} to choose.",
            "Name the lock file that was exported for this group.",
        )
    return _pylock(lock)


# --- requirements.txt and constraints.txt ---


def _read_lines(path: Path, kind: str, above: tuple[Path, ...]) -> RequirementList:
    if path.absolute() in above or len(above) > _DEEPEST:
        raise ConfigError(f"{path} names itself, by way of another file.", "Remove that line.")
    found = RequirementList()
    for number, line in _logical_lines(_text(path)):
        found += _line(line, kind, path, number, (*above, path.absolute()))
    return found


def _line(
    line: str, kind: str, path: Path, number: int, above: tuple[Path, ...]
) -> RequirementList:
    place = f"{path}, line {number}"
    option, value = _option(line)
    if option in _FILES:
        if not value or "://" in value:
            raise ConfigError(f"{place}: {line!r} names no file here.", "Name a local file.")
        return _read_lines(path.parent / value, _FILES[option], above)
    if option in _INDEXES and value:
        entry = value if "://" in value else str((path.parent / value).absolute())
        return RequirementList(indexes=(entry,))
    if option in ("-e", "--editable"):
        line = value
    elif option:
        raise ConfigError(
            f"{place}: the option {option} has no meaning for fleetbuild.",
            "Remove the line; fleetbuild.yml holds such settings (docs/reference/config.md).",
        )
    text, *options = re.split(r"\s+--(?=[a-z])", line)
    strange = [each for each in options if not each.startswith(("hash=", "hash "))]
    if strange:
        raise ConfigError(
            f"{place}: the option --{strange[0].split('=')[0]} has no meaning for fleetbuild.",
            "Remove it from the line.",
        )
    hashes = _SHA256.findall(" ".join(options))
    if options and not hashes:
        raise ConfigError(f"{place} has no sha256 among its hashes.", "Add one.")
    text = _requirement(text.strip(), path.parent, place)
    name = _name_of(text)
    if hashes and name is None:
        raise ConfigError(f"{place} has a hash for a source without a name.", "Write NAME @ PATH.")
    allowed = {name: tuple(hashes)} if name and hashes else {}
    if kind == "constraints":
        return RequirementList(constraints=(_constraint(text, place),), hashes=allowed)
    return RequirementList(requirements=(text,), hashes=allowed)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that says something, with its number: joined, without comments."""
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        first = first or number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            joined += raw[:-1] + " "
            continue
        line = _COMMENT.sub("", joined + raw).strip()
        if line:
            yield first, _VARIABLE.sub(lambda name: os.environ.get(name[1]) or name[0], line)
        joined, first = "", 0
    if line := _COMMENT.sub("", joined).strip():
        yield first, line


def _option(line: str) -> tuple[str, str]:
    """Return the option that this line is, and its value; ("", "") for a requirement."""
    if not line.startswith("-"):
        return "", ""
    match = re.match(r"(--[a-z][a-z-]*)(?:[=\s]\s*(.*))?$", line) or re.match(
        r"(-[a-z])\s*=?\s*(.*)$", line
    )
    if match is None:
        return line.split(maxsplit=1)[0], ""
    try:
        return match[1], " ".join(shlex.split(match[2] or ""))
    except ValueError:
        return match[1], match[2]


def _requirement(text: str, folder: Path, place: str) -> str:
    """Return a requirement with an absolute path, if it has one."""
    if text.startswith(_SCHEMES):
        return text
    name, at, source = text.partition("@")
    if at and "==" not in name and not _is_path(name):
        source, _, marker = source.strip().partition(" ;")
        if not source.startswith((*_SCHEMES, "/")):
            source = str((folder / Path(source).expanduser()).absolute())
        return f"{name.strip()} @ {source}" + (f" ;{marker}" if marker else "")
    if _is_path(text):
        path, bracket, extras = text.partition("[")
        return str((folder / Path(path).expanduser()).absolute()) + bracket + extras
    try:
        return str(Requirement(text))
    except InvalidRequirement as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"{place}: {text[:200]!r} is not a requirement: {reason}.",
            "Write NAME==VERSION, a range such as NAME>=1.2, NAME @ git+https://…, or a path.",
        ) from None


def _is_path(text: str) -> bool:
    source = text.split(";", maxsplit=1)[0]
    return text.startswith((".", "/", "~")) or "/" in source or source.endswith(_ARCHIVES)


def _constraint(text: str, place: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url or requirement.extras:
        raise ConfigError(
            f"{place}: {text[:200]!r} cannot bound a version.",
            "A constraint is a name and a range, such as NAME<2.",
        )
    return str(requirement)


def _name_of(text: str) -> str | None:
    try:
        return str(canonicalize_name(Requirement(text).name))
    except InvalidRequirement:
        name, at, _ = text.partition(" @ ")
        return str(canonicalize_name(name.split("[")[0])) if at else None


# --- pyproject.toml ---


def _group(
    groups: Mapping[str, Any],
    names: Mapping[str, str],
    wanted: str,
    path: Path,
    above: tuple[str, ...],
) -> Iterator[str]:
    if wanted in above or wanted not in names:
        what = "includes itself" if wanted in above else "does not exist"
        raise ConfigError(f"{path}: the dependency group {wanted} {what}.", "Correct the group.")
    entries = groups[names[wanted]]
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict) and entry.keys() == {"include-group"}:
            other = canonicalize_name(str(entry["include-group"]))
            yield from _group(groups, names, other, path, (*above, wanted))
        else:
            yield from _texts([entry], path)


def _texts(entries: object, path: Path) -> Iterator[str]:
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, str):
            raise ConfigError(f"{path}: {entry!r} is not a requirement.", "Write it as a string.")
        yield _requirement(entry, path.parent, str(path))


# --- Lock files ---


def _pylock(lock: Lock) -> RequirementList:
    path, found = lock.path, RequirementList()
    for package in lock.packages:
        name, version, marker = package["name"], package.get("version"), package.get("marker")
        condition = f" ; {marker}" if marker else ""
        vcs, folder = package.get("vcs"), package.get("directory")
        if isinstance(vcs, dict) and vcs.get("type") == "git":
            text = f"{name} @ git+{vcs.get('url')}@{vcs.get('commit-id')}"
        elif isinstance(folder, dict):
            text = f"{name} @ {(path.parent / str(folder.get('path'))).absolute()}"
        else:
            text = f"{name}=={_version(package, path)}"
        found += RequirementList(
            requirements=(text + condition,),
            constraints=(f"{name}=={version}{condition}",) if version and "@" not in text else (),
            hashes=_hashes_of(package),
        )
    return found


def _uv_lock(lock: Lock, group: str | None) -> RequirementList:
    path, packages = lock.path, lock.packages
    roots = [each for each in packages if _source(each).keys() & {"virtual", "editable"}]
    locked = [each for each in packages if each not in roots]
    texts: list[str] = []
    for root in roots:
        wanted = root.get("dependencies", [])
        if group is not None:
            groups = {**_table(root, "optional-dependencies"), **_table(root, "dev-dependencies")}
            wanted = groups.get(group, [])
        for entry in _tables(wanted, path):
            texts += [_locked_text(entry, each, path) for each in _meant(entry, locked)]
    if not texts and (roots or group is not None):
        what = f"the group {group}" if group else "its project"
        raise ConfigError(
            f"{path} locks no dependency of {what}.", "Name packages with --package or -r."
        )
    found = RequirementList(requirements=_once(*texts))
    for package in locked:
        if "registry" in _source(package):
            markers = package.get("resolution-markers") or [""]
            for marker in markers:
                text = f"{package['name']}=={_version(package, path)}"
                text += f" ; {marker}" if marker else ""
                found += RequirementList(constraints=(text,))
        found += RequirementList(hashes=_hashes_of(package))
    return found


def _meant(entry: Mapping[str, Any], locked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the locked packages that a dependency of the project means; several if it forks."""
    version = entry.get("version")
    return [
        each
        for each in locked
        if each["name"] == entry["name"] and version in (None, each.get("version"))
    ]


def _locked_text(entry: Mapping[str, Any], package: Mapping[str, Any], path: Path) -> str:
    extras = ",".join(map(str, entry.get("extra", ())))
    name = f"{package['name']}[{extras}]" if extras else str(package["name"])
    marker = f" ; {entry['marker']}" if entry.get("marker") else ""
    source = _source(package)
    if git := source.get("git"):  # https://host/name?rev=main#<commit>
        address, _, commit = str(git).partition("#")
        return f"{name} @ git+{address.partition('?')[0]}@{commit}{marker}"
    for kind in ("directory", "path"):
        if kind in source:
            return f"{name} @ {(path.parent / str(source[kind])).absolute()}{marker}"
    return f"{name}=={_version(package, path)}{marker}"


def _source(package: Mapping[str, Any]) -> dict[str, Any]:
    return _table(package, "source")


def _version(package: Mapping[str, Any], path: Path) -> str:
    version = package.get("version")
    if not isinstance(version, str):
        raise ConfigError(f"{path} has no version of {package['name']}.", "Lock it again.")
    return version


def _hashes_of(package: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    files = [package.get("sdist"), package.get("archive"), *(package.get("wheels") or ())]
    found = []
    for file in files:
        if isinstance(file, dict):
            sha256 = _table(file, "hashes").get("sha256") or str(file.get("hash", ""))
            found += re.findall("[0-9a-f]{64}", str(sha256))
    return {str(canonicalize_name(package["name"])): tuple(found)} if found else {}


# --- Reading ---


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} has more than 32 MB.", "Name a file that lists packages.")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist.", "Name an existing file.") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path} cannot be read: {reason}.", "Name a readable file.") from None


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}.", "Correct the file.") from None


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _tables(value: object, path: Path) -> Iterator[dict[str, Any]]:
    for each in value if isinstance(value, list) else []:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise ConfigError(f"{path} lists a package without a name.", "Lock it again.")
        yield each


def _once(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
