"""Read the requirements of a published wheel from its METADATA, without the whole file.

In: a locked wheel. Out: `StaticMetadata`, or None. An index serves METADATA beside the wheel
(PEP 658); of a file on this machine it is read from the archive.
"""

from __future__ import annotations

import zipfile
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fleetbuild.audit.archive import BROKEN
from fleetbuild.audit.metadata import same
from fleetbuild.models import LockedFile
from fleetbuild.planning.resolution import StaticMetadata
from fleetbuild.store.address_secrets import reveal
from fleetbuild.store.fetch import read_text
from fleetbuild.store.index_config import IndexSettings
from fleetbuild.store.sources import requirements_of_metadata

_MAX_TEXT = 1 << 20


def metadata_of_wheel(file: LockedFile, settings: IndexSettings) -> StaticMetadata | None:
    """Return what a wheel requires; None if it cannot be read, or is for another version."""
    if file.url.startswith("file://"):
        text = _of_archive(Path(unquote(urlsplit(file.url).path)))
    else:
        address = reveal(f"{file.url}.metadata", settings.tokens)
        text = read_text(address, _MAX_TEXT, settings.credentials)
    headers = HeaderParser().parsestr(text or "")
    name, version = str(headers["Name"]), str(headers["Version"])
    if not text or not same(name, version, file.name, file.version):
        return None
    requires, python = requirements_of_metadata(text)
    return StaticMetadata(
        name=file.name, version=file.version, requires=requires, requires_python=python
    )


def _of_archive(path: Path) -> str | None:
    try:
        with zipfile.ZipFile(path) as wheel:
            (member,) = (
                info
                for info in wheel.infolist()
                if info.filename.count("/") == 1 and info.filename.endswith(".dist-info/METADATA")
            )
            with wheel.open(member) as file:
                return file.read(_MAX_TEXT).decode("utf-8", "replace")
    except BROKEN:
        return None
