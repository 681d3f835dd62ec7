"""What fuzzing feeds: the readers of hostile input, each with valid inputs to damage.

test_fuzz.py damages them with hypothesis in every `make test`, fuzz.py with atheris in `make fuzz`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from fleetbuild.audit.wheel import audit_here
from fleetbuild.extensions.kubernetes.api.kubeconfig_schema import parse as parse_kubeconfig
from fleetbuild.models import Facts
from fleetbuild.plan.document.serialize import dump_plan, read_plan, with_digest
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import split
from tests.factories.data import DATA
from tests.factories.elf import make_elf
from tests.factories.files import make_wheel
from tests.factories.plans import six_nodes

SECONDS, MEMORY_MB = 1.0, 200  # that one input may take, if it is at most this long:
LONGEST_TEXT, LONGEST_WHEEL = 20_000, 500_000
WHEEL_NAME = "demo-1.0-py3-none-any.whl"


def _sections() -> dict[str, list[str]]:
    """The texts of each section, as real nodes printed them."""
    found: dict[str, list[str]] = {}
    for path in sorted((DATA / "seed-fleet").glob("*/*")):
        if path.is_file():
            found.setdefault(path.name, []).append(path.read_text(errors="replace")[:30_000])
    return found


SECTIONS = _sections()
USUAL = {name: texts[0] for name, texts in SECTIONS.items()}
FRAMED = "".join(
    f"n0nce begin {name}\n{text}\nn0nce end {name} 0\n" for name, text in USUAL.items()
)
assert len(split(FRAMED, "n0nce")) == len(USUAL) > 5  # else nothing of it would be read
MANIFEST = json.dumps({
    "release": "default", "id": "r1", "group": "cpu-avx-cp311", "verified": True,
    "python": "/usr/bin/python3", "dependencies": ["numpy==2.0"],
    "wheels": [{"package": "x", "version": "1", "artifact_key": "0" * 32, "sha256": "0" * 64}],
})  # fmt: skip
PLAN = dump_plan(with_digest(six_nodes()))
KUBECONFIG = yaml.safe_dump({
    "apiVersion": "v1", "kind": "Config", "current-context": "a",
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:6443",
                                           "certificate-authority-data": "QQ=="}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "users": [{"name": "a", "user": {"token": "t", "exec": {
        "command": "x", "args": ["y"], "env": [{"name": "A", "value": "b"}]}}}],
})  # fmt: skip


def read_probe(text: str) -> None:
    """A whole answer of a node: its frames, then its facts."""
    assert isinstance(facts_of(split(text, "n0nce")), Facts)


def read_capture(text: str) -> None:
    """One section, named by the first line, among the usual ones."""
    name, _, content = text.partition("\n")
    assert isinstance(facts_of({**USUAL, name[:40]: content}), Facts)


def read_manifest(text: str) -> None:
    """The manifests of a node's releases."""
    facts_of({"uname": "Linux 6.1.0 x86_64\n", "release": text})


def read_kubeconfig(text: str) -> None:
    """A kubeconfig."""
    parse_kubeconfig(text, "config")


def read_wheel(path: Path) -> None:
    """A wheel that a node built or an index served."""
    audit_here(path, (), ())
    audit_here(path, (), (), read_code=False, published=True)


def wheel_seeds(folder: Path) -> list[bytes]:
    """A wheel with machine code, and one whose members are stored."""
    files = {"demo/_c.so": make_elf(b"\xc5\xf4\x58\xc2", versions=("GLIBC_2.34",)),
             "demo/__init__.py": b"", "demo-1.0.dist-info/entry_points.txt":
             b"[console_scripts]\ndemo = demo:main\n"}  # fmt: skip
    packed = make_wheel(folder, files=files)
    stored = folder / "stored.whl"
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(stored, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return [packed.read_bytes(), stored.read_bytes()]


@dataclass(frozen=True)
class TextReader:
    """A reader of text, and valid texts."""

    read: Callable[[str], object]
    seeds: tuple[str, ...]


TEXT_READERS = {
    "probe": TextReader(read_probe, (FRAMED,)),
    "captures": TextReader(
        read_capture, tuple(f"{name}\n{text}" for name, each in SECTIONS.items() for text in each)
    ),
    "plan": TextReader(read_plan, (PLAN,)),
    "manifest": TextReader(read_manifest, (f"{MANIFEST}\n", f"{MANIFEST}\n{MANIFEST}\n")),
    "kubeconfig": TextReader(read_kubeconfig, (KUBECONFIG,)),
}
