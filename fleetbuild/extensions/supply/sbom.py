"""The software bill of materials of a built wheel, in the wheel (PEP 770), as CycloneDX JSON.

In: the planned wheel and the file that a node built. Out: the same wheel with the bill in its
.dist-info/sboms folder. The controller adds it after the audit, so that no node writes its text.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from fleetbuild.audit.archive import Archive
from fleetbuild.audit.entry_points import info_folder
from fleetbuild.audit.limited_process import read_apart
from fleetbuild.audit.metadata import record_rows
from fleetbuild.errors import AuditError
from fleetbuild.files import raise_if_folder_is_full
from fleetbuild.models import LockedFile, PlannedWheel

NAME = "sboms/fleetbuild.cdx.json"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest date that a zip file knows


def add_sbom(source: Path, dest: Path, wheel: PlannedWheel) -> None:
    """Write the wheel with its bill of materials to `dest`; everything else keeps its bytes."""
    found = read_apart(sbom_here, source, dest=str(dest), bill=sbom(wheel))
    if found is None:
        raise_if_folder_is_full(dest.parent)
    if not found:
        raise AuditError(
            f"{source.name} takes no bill of materials: its RECORD is not its last file, it brings"
            " such a bill, or it takes too much time or memory.",
            "Look into it (fleetbuild audit WHEEL), and build it again.",
        )


def sbom_here(source: Path, dest: str, bill: dict[str, Any]) -> bool:
    """Write the wheel in this process, the separate one; return whether its form allows that."""
    shutil.copyfile(source, dest)
    with zipfile.ZipFile(dest, "a") as archive:
        record = archive.getinfo(f"{info_folder(Archive(archive))}/RECORD")
        rows = record_rows(archive.read(record).decode("utf-8", "replace"))  # as the audit reads it
        name = record.filename.removesuffix("RECORD") + NAME
        last = max(archive.infolist(), key=lambda info: info.header_offset)
        if last is not record or name in archive.NameToInfo:
            return False
        add_libraries(bill, rows.values())
        text = json.dumps(bill, indent=1, sort_keys=True).encode()
        hashed = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
        lines = io.StringIO()
        bill_row = [name, f"sha256={hashed}", len(text)]
        csv.writer(lines, lineterminator="\n").writerows([*rows.values(), bill_row])
        archive.filelist.remove(archive.NameToInfo.pop(record.filename))
        archive.start_dir = record.header_offset  # the new members take the place of RECORD
        for member, content in ((name, text), (record.filename, lines.getvalue().encode())):
            entry = zipfile.ZipInfo(member, _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return True


def add_libraries(bill: dict[str, Any], record: Iterable[Sequence[str]]) -> None:
    """Add the shared libraries that were copied into a wheel, by its RECORD, to its bill."""
    parts = [
        {
            "type": "file",
            "bom-ref": f"file:{path}",
            "name": path,
            "scope": "required",
            "hashes": [{"alg": "SHA-256", "content": _hex(digest)}],
        }
        for path, digest, *_ in sorted(list(row) for row in record if len(row) > 1)
        if ".libs/" in path and digest.startswith("sha256=")
    ]
    bill["components"][:0] = parts
    bill["dependencies"][0]["dependsOn"] = [part["bom-ref"] for part in parts]


def _hex(digest: str) -> str:
    raw = digest.removeprefix("sha256=")
    return base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)).hex()


def sbom(wheel: PlannedWheel) -> dict[str, Any]:
    """Return the bill of materials. The same wheel always gets the same one: it has no time."""
    main = _purl(wheel.package, wheel.wheel_version)
    # What the build used: its headers and static libraries can be in the machine code.
    tools = [_component(file) for file in sorted(wheel.build_dependencies, key=lambda f: f.name)]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{wheel.artifact_key}{main}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": main,
                "name": wheel.package,
                "version": wheel.wheel_version,
                "purl": main,
                **_source(wheel),
            },
            "properties": [
                {"name": "fleetbuild:artifact-key", "value": wheel.artifact_key or ""},
                {"name": "fleetbuild:recipe", "value": wheel.recipe},
                {"name": "fleetbuild:target", "value": wheel.target.name},
                *(
                    {"name": f"fleetbuild:environment:{name}", "value": value}
                    for name, value in sorted(wheel.environment.items())
                ),
            ],
        },
        "components": tools,
        "dependencies": [{"ref": main, "dependsOn": []}],
    }


def _source(wheel: PlannedWheel) -> dict[str, Any]:
    file = wheel.source
    if file is None:
        return {}
    hashes = [{"alg": "SHA-256", "content": file.sha256}] if file.sha256 else []
    remote = "://" in file.url and not file.url.startswith("file:")
    url = file.url if remote else f"file:{quote(file.file)}"  # the same from any folder
    return {"externalReferences": [{"type": "source-distribution", "url": url, "hashes": hashes}]}


def _component(file: LockedFile) -> dict[str, Any]:
    purl = _purl(file.name, file.version)
    return {
        "type": "library",
        "bom-ref": purl,
        "name": file.name,
        "version": file.version,
        "purl": purl,
        "scope": "excluded",
        "hashes": [{"alg": "SHA-256", "content": file.sha256}] if file.sha256 else [],
    }


def _purl(name: str, version: str) -> str:
    return f"pkg:pypi/{canonicalize_name(name)}@{quote(version, safe='')}"
