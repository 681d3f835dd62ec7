"""Wheels, sources, repositories and stores on disk, and the settings of an index of such files."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest

from fleetbuild.models import Plan
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.wheels import Store


def make_wheel(
    folder: Path,
    name: str = "demo",
    version: str = "1.0",
    tag: str = "py3-none-any",
    files: Mapping[str, bytes] | None = None,
    *,
    requires: str = "",
    replace: Mapping[str, bytes | None] | None = None,
    extra: Iterable[tuple[str, bytes]] = (),
    file_name: str | None = None,
) -> Path:
    """A wheel on disk; `replace` overwrites members after RECORD was made, None removes one."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    about = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n"
    members: dict[str, bytes | None] = {
        **{path: bytes(data) for path, data in (files or {}).items()},
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": about.encode(),
    }
    record = "".join(_record_line(path, data) for path, data in members.items() if data is not None)
    members[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    members.update({key.format(info=info): data for key, data in (replace or {}).items()})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (file_name or f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in (*members.items(), *extra):
            if data is not None:
                entry = zipfile.ZipInfo(member)  # of 1980: the same files make the same wheel
                entry.external_attr = 0o600 << 16
                archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f'"{name}",sha256={digest},{len(data)}\n'


# The wheel that the audit's tests are about, unless they say otherwise.
demo_wheel = partial(make_wheel, version="1.0+cpu.avx", tag="cp311-cp311-linux_x86_64")


def stocked(folder: Path, plan: Plan, says: str = "0.8.0") -> Store:
    """A store below this folder that holds the whole release of a plan: hnswlib in pure Python."""
    code = {"hnswlib.py": f"__version__ = {says!r}\n".encode()}
    wheel = make_wheel(folder, "hnswlib", "0.8.0+cpu.avx2", files=code)
    store = Store(folder / "store")
    store.add(wheel, plan.groups[0].wheels[0], built_on="a", seconds=1)
    return store


def make_project(
    name: str,
    version: str = "1.0",
    requires: str = "[]",
    build: str = '["setuptools"]',
    backend: str = "setuptools.build_meta",
) -> str:
    """A pyproject.toml that says everything about the project."""
    return (
        f'[build-system]\nrequires = {build}\nbuild-backend = "{backend}"\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {requires}\n'
    )


def own_backend(name: str, requires: str = "[]") -> str:
    """A pyproject.toml whose backend lies beside it."""
    return (
        f'[build-system]\nrequires = {requires}\nbuild-backend = "{name}"\nbackend-path = ["."]\n'
    )


def make_sdist(
    folder: Path,
    name: str,
    version: str = "1.0",
    requires: str = "[]",
    build: str = "[]",
    *,
    pyproject: str | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """An sdist with static metadata, in this pyproject.toml or one with these requirements."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    pyproject = pyproject or make_project(name, version, requires, build, "none")
    pkg_info = f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
    with tarfile.open(path, "w:gz") as tar:
        for file, text in {"PKG-INFO": pkg_info, "pyproject.toml": pyproject, **files}.items():
            member = tarfile.TarInfo(f"{name}-{version}/{file}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def git(folder: Path, *arguments: str) -> str:
    """git there, as nobody in particular and without anybody's settings."""
    who = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    environment = {
        **dict.fromkeys(who, "nobody"),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ALLOW_PROTOCOL": "file",
    }
    command = ["git", "-c", "init.defaultBranch=main", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_repository(folder: Path, files: dict[str, str]) -> Path:
    """A repository with these files in its first commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def only(folder: Path, cache: Path) -> IndexSettings:
    """Settings that know this folder of files and nothing else."""
    values = {"UV_FIND_LINKS": str(folder), "UV_NO_INDEX": "1", "UV_CACHE_DIR": str(cache)}
    return IndexSettings(values)


def be_only_index(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to the folder above these files, where pip's settings know them and nothing else."""
    here = files.parent
    (here / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {files}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(here / "pip.conf"))
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(here / "cache"))
    monkeypatch.chdir(here)


def nest(folder: Path, depth: int, name: str = "d", owner: int = -1) -> None:
    """Make folders in each other, deeper than a path can say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        os.chown(name, owner, -1, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
