"""Package index settings from fleetbuild.yml, uv and pip.

In: entries of fleetbuild.yml and the user's settings. Out: environment variables for uv. uv
reads its own settings; pip's are translated unless uv has its own. They are passed in the
environment, since an index URL may contain a password and argv is public. The first index that has
a package serves it: with pip's rule, whoever uploads a higher version of an internal name to a
public index would be installed.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from fleetbuild.errors import ConfigError
from fleetbuild.models import PYTORCH, Config
from fleetbuild.store.address_secrets import hide, logins_of, tokens_of, without_login

_UV = (
    "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_NO_INDEX",
)  # fmt: skip
_UV_KEYS = {"index", "index-url", "extra-index-url", "find-links", "no-index"}
_SYSTEM = (Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf"))
_UV_SYSTEM = Path("/etc/uv/uv.toml")
_DISTRIBUTION = re.compile(r".*\.(whl|tar\.gz|zip|tar\.bz2|tar\.xz)")
_FOLDER = re.compile(r"(?:^|[\s=])(file://\S+)")
_ON = {"1", "true", "yes", "on"}


@dataclass(frozen=True)
class IndexSettings:
    """The package indexes as environment variables for uv, and the logins for them."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)  # by server
    # Packages that come only from one index: normalised name -> its address, without a login.
    package_index: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Files to allow in wheels that others built: normalised name -> patterns.
    allow_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    # Mirrors of git repositories and archives: prefix of an address -> prefix of the mirror.
    mirrors: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Recalled versions of dependencies: name!=version.
    excluded: tuple[str, ...] = ()
    # The user's constraints on dependencies; builds are not bound by them.
    bounds: tuple[str, ...] = ()
    # What may be secret in the indexes' addresses, by the text that replaces it.
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return settings that uv accepts only as arguments."""
        return ("--no-index",) if self.environment.get("UV_NO_INDEX") else ()

    @property
    def strategy(self) -> str:
        """Return uv's rule for a package that several indexes have: the first one serves it.

        A folder on this machine is often a part of an index. Then later indexes are asked as well,
        but only for a package of which it has no fitting file.
        """
        folders = "file://" in self.environment.get("UV_INDEX", "")
        return "unsafe-first-match" if folders else "first-index"

    @property
    def places(self) -> str:
        """Return the indexes and folders that are searched, for messages."""
        known = self.environment
        named = known.get("UV_FIND_LINKS", "").split(",")
        if not self.arguments:
            named += known.get("UV_INDEX", "").split()
            named.append(
                known.get("UV_DEFAULT_INDEX") or known.get("UV_INDEX_URL") or "the default index"
            )
        named += self.package_index.values()
        once = dict.fromkeys(hide(each, self.tokens) for each in named if each)
        return " or ".join(once) or "no index"

    @property
    def asked(self) -> str:
        """Return which of these places answers for a package, for messages."""
        return f"the first of {self.places} that has it" if " or " in self.places else self.places

    @property
    def key(self) -> str:
        """Return the indexes as text, without credentials."""
        headings = {**self.environment, **self.package_index}
        return "; ".join(
            f"{name}={hide(value, self.tokens)}"
            for name, value in sorted(headings.items())
            if not name.endswith(("_USERNAME", "_PASSWORD"))
        )

    @property
    def sources(self) -> dict[str, str]:
        """Return name -> address of the indexes that serve only named packages."""
        addresses = sorted(set(self.package_index.values()))
        return {f"own{number}": address for number, address in enumerate(addresses)}


def index_settings(
    extra: Iterable[str] = (),
    folder: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    home: Path | None = None,
    *,
    mirrors: Mapping[str, str] = MappingProxyType({}),
    package_index: Mapping[str, str] = MappingProxyType({}),
    exclude_newer: str | None = None,
) -> IndexSettings:
    """Return the settings from entries of fleetbuild.yml (in `folder`) and from this user."""
    home = home or Path.home()
    values = {name: environ[name] for name in _UV if environ.get(name)}
    pip = _of_pip(environ, home)
    if not values and not _uv_file_has_indexes(environ, home):
        values = _translated(pip)
    indexes, links = _sorted(extra, folder or Path.cwd())
    if indexes:
        values["UV_INDEX"] = " ".join((*indexes, *values.get("UV_INDEX", "").split()))
    if links:
        known = [link for link in values.get("UV_FIND_LINKS", "").split(",") if link]
        values["UV_FIND_LINKS"] = ",".join((*links, *known))
    _refuse_missing(values)
    if (cert := pip.get("cert")) and "SSL_CERT_FILE" not in environ:
        values["SSL_CERT_FILE"] = cert
    if hosts := pip.get("trusted-host"):
        values.setdefault("UV_INSECURE_HOST", " ".join(hosts.split()))
    if exclude_newer:
        values["UV_EXCLUDE_NEWER"] = exclude_newer
    own = {
        str(canonicalize_name(name)): _one_index(entry, folder or Path.cwd())
        for name, entry in package_index.items()
    }
    addresses = (*values.values(), *mirrors.values(), *own.values())
    plain = {name: without_login(address) for name, address in own.items()}
    settings = IndexSettings(
        values, logins_of(addresses), plain, mirrors=mirrors, tokens=tokens_of(addresses)
    )
    for name, address in settings.sources.items():
        full = next(package for package in own.values() if without_login(package) == address)
        parts = urlsplit(full)
        if parts.username is not None:
            values[f"UV_INDEX_{name.upper()}_USERNAME"] = unquote(parts.username)
            values[f"UV_INDEX_{name.upper()}_PASSWORD"] = unquote(parts.password or "")
    return settings


def settings_of(config: Config, folder: Path) -> IndexSettings:
    """Return the settings of a fleetbuild.yml whose paths are relative to `folder`."""
    settings = index_settings(
        config.index,
        folder,
        mirrors=config.mirrors,
        package_index=config.package_index,
        exclude_newer=config.exclude_newer,
    )
    allowed = {str(canonicalize_name(name)): files for name, files in config.allow_files.items()}
    return replace(settings, allow_files=allowed)


def mirrored(url: str, mirrors: Mapping[str, str]) -> str:
    """Return the mirrored address; the longest prefix wins, as in git."""
    fitting = max((prefix for prefix in mirrors if url.startswith(prefix)), key=len, default=None)
    return url if fitting is None else mirrors[fitting] + url.removeprefix(fitting)


def _uv_file_has_indexes(environ: Mapping[str, str], home: Path) -> bool:
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = environ.get("UV_CONFIG_FILE")
    for path in (Path(named) if named else config / "uv" / "uv.toml", _UV_SYSTEM):
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if _UV_KEYS & (data.keys() | data.get("pip", {}).keys()):
            return True
    return False


def _of_pip(environ: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return pip's settings in pip's order: global, user, site, PIP_CONFIG_FILE, environment."""
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    named = environ.get("PIP_CONFIG_FILE")
    paths = [
        *_SYSTEM,
        home / ".pip" / "pip.conf",
        config / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]
    found: dict[str, str] = {}
    for path in [] if named == os.devnull else paths:
        found.update(_of_pip_file(path))
    names = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "trusted-host")
    for name in names:
        if value := environ.get("PIP_" + name.upper().replace("-", "_")):
            found[name] = value
    return found


def _of_pip_file(path: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}  # pip reports a broken file itself
    found: dict[str, str] = {}
    for section in ("global", "install", "download"):
        if parser.has_section(section):
            found.update((k.replace("_", "-"), v) for k, v in parser.items(section))
    return found


def _translated(pip: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    if url := pip.get("index-url"):
        values["UV_DEFAULT_INDEX"] = url
    if urls := pip.get("extra-index-url"):
        values["UV_INDEX"] = " ".join(urls.split())
    links = [link for link in pip.get("find-links", "").split() if _is_there(link)]
    if links:
        values["UV_FIND_LINKS"] = ",".join(links)
    if pip.get("no-index", "").lower() in _ON:
        values["UV_NO_INDEX"] = "1"
    return values


def _is_there(link: str) -> bool:
    """Return whether a find-links folder exists: pip skips a missing one, but uv fails."""
    return "://" in link or Path(link).expanduser().is_dir()


def _sorted(entries: Iterable[str], folder: Path) -> tuple[list[str], list[str]]:
    """Split entries of fleetbuild.yml into indexes and find-links."""
    indexes: list[str] = []
    links: list[str] = []
    for entry in entries:
        if entry == PYTORCH:  # each request names its variant
            continue
        if "://" in entry and not entry.startswith("file://"):
            (links if entry.endswith(".html") else indexes).append(entry)
            continue
        path = folder / Path(entry.removeprefix("file://")).expanduser()
        if not path.is_dir():
            raise ConfigError(
                f"index: names {entry}, but the folder {path} does not exist.",
                "Name a folder of wheels and sdists, or the URL of an index.",
            )
        if any(_DISTRIBUTION.fullmatch(each.name) for each in path.iterdir()):
            links.append(str(path.absolute()))
        else:
            indexes.append(path.absolute().as_uri())
    return indexes, links


def _refuse_missing(values: Mapping[str, str]) -> None:
    """Refuse a folder that is named as an index and is not there: to uv it is an index with no
    package at all."""
    for name, value in values.items():
        for address in _FOLDER.findall(value) if name != "UV_FIND_LINKS" else ():
            if not Path(unquote(urlsplit(address).path)).is_dir():
                raise ConfigError(
                    f"{name} names the index {address}, and there is no such folder.",
                    "Correct the address, or remove it from uv's or pip's settings.",
                )


def _one_index(entry: str, folder: Path) -> str:
    indexes, links = _sorted([entry], folder)
    return indexes[0] if indexes else links[0]
