"""Small wheels, sources and settings for the tests of the store."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

from fleetbuild.store import IndexSettings


def make_wheel(
    folder: Path, name: str, version: str = "1.0", tag: str = "py3-none-any", requires: str = ""
) -> Path:
    """A wheel with metadata and nothing else."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make_sdist(
    folder: Path, name: str, version: str = "1.0", requires: str = "[]", build: str = "[]"
) -> Path:
    """An sdist with static metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    pyproject = (
        f'[build-system]\nrequires = {build}\nbuild-backend = "none"\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {requires}\n'
    )
    pkg_info = f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n"
    with tarfile.open(path, "w:gz") as tar:
        for file, text in (("PKG-INFO", pkg_info), ("pyproject.toml", pyproject)):
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
