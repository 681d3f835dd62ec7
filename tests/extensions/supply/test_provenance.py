"""Provenance of stored wheels: the statement, the bill of materials, the command."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleetbuild.audit import audit_wheel, check_wheel
from fleetbuild.cli import app
from fleetbuild.config import config_model
from fleetbuild.errors import AuditError, UsageError
from fleetbuild.extensions.supply.provenance import provenance_of
from fleetbuild.extensions.supply.sbom import NAME as SBOM
from fleetbuild.extensions.supply.sbom import add_sbom
from fleetbuild.extensions.supply.show import provenance_lines
from fleetbuild.extensions.supply.signing import release_signer
from fleetbuild.models import Config, ReleaseFile
from fleetbuild.models.stored import BuildContext, StoredWheel
from fleetbuild.store.index import write_index
from fleetbuild.store.wheels import Store
from tests.factories import plans
from tests.factories.elf import make_elf
from tests.factories.files import make_wheel
from tests.factories.fleets import locked

VERSION = "0.8.0+cpu.avx2"
BILL = f"hnswlib-{VERSION}.dist-info/{SBOM}"
KEY = "0123456789abcdef0123456789abcdef"
TAG = "cp311-cp311-linux_x86_64"
CONTEXT = BuildContext(plan_digest="d" * 64, toolchain={"gcc": ("12.2.0",)})


def planned(**changes: Any):
    values = {
        "artifact_key": KEY,
        "source": locked("hnswlib", "0.8.0", "5"),
        "build_dependencies": (locked("setuptools", "80", "c"), locked("pybind11", "2", "b")),
        "environment": {"CFLAGS": "-O3 -mavx2"},
        "patches": {"fix.patch": "--- a"},
    }
    return plans.make_wheel(**{**values, **changes})


@pytest.fixture
def built(tmp_path: Path) -> Path:
    code = {"hnswlib.so": make_elf(b"\x90"), "hnswlib.libs/libgomp-1.so": make_elf(b"\x90")}
    return make_wheel(tmp_path / "built", "hnswlib", VERSION, TAG, code)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "store")


@pytest.fixture
def stored(store: Store, built: Path) -> StoredWheel:
    return store.add(built, planned(), built_on="gpu-1", seconds=90, context=CONTEXT)


def test_the_statement_is_in_toto_with_a_slsa_predicate(stored: StoredWheel) -> None:
    document = json.loads(stored.path.with_name(f"{stored.path.name}.intoto.json").read_text())
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://slsa.dev/provenance/v1"
    assert document["subject"] == [{"name": stored.path.name, "digest": {"sha256": stored.sha256}}]
    definition, details = (document["predicate"][k] for k in ("buildDefinition", "runDetails"))
    assert definition["buildType"].startswith("https://")
    parameters = definition["externalParameters"]
    assert parameters["recipe"] == "generic"
    assert parameters["environment"] == {"CFLAGS": "-O3 -mavx2"}
    assert parameters["patches"] == {"fix.patch": "sha256:" + hashlib.sha256(b"--- a").hexdigest()}
    assert definition["internalParameters"] == {"artifactKey": KEY, "planDigest": "d" * 64}
    files = {each["name"]: each for each in definition["resolvedDependencies"]}
    source = planned().source
    assert files[source.file]["digest"] == {"sha256": source.sha256}
    assert files[source.file]["uri"] == source.url
    assert len(files) == 3
    assert details["builder"]["id"].endswith("/gpu-1")
    assert details["builder"]["builderDependencies"] == [
        {"name": "gcc", "annotations": {"version": "12.2.0"}}
    ]
    begun, ended = details["metadata"]["startedOn"], details["metadata"]["finishedOn"]
    assert begun < ended


def test_a_wheel_that_an_earlier_run_built_gets_no_times(store: Store, built: Path) -> None:
    context = replace(CONTEXT, cached=True)
    stored = store.add(built, planned(), built_on="gpu-1", seconds=90, context=context)
    document = json.loads(stored.path.with_name(f"{stored.path.name}.intoto.json").read_text())
    assert document["predicate"]["runDetails"]["metadata"] == {}


def test_the_wheel_holds_its_bill_of_materials_and_passes_the_audit(
    stored: StoredWheel, built: Path
) -> None:
    with zipfile.ZipFile(stored.path) as archive, zipfile.ZipFile(built) as before:
        (name,) = (name for name in archive.namelist() if name.endswith(SBOM))
        bill = json.loads(archive.read(name))
        assert archive.testzip() is None
        for info in before.infolist():
            if not info.filename.endswith("RECORD"):
                assert archive.read(info.filename) == before.read(info.filename)
        rows = {row[0] for row in csv.reader(archive.read(
            f"hnswlib-{VERSION}.dist-info/RECORD").decode().splitlines())}  # fmt: skip
    assert rows == set(archive.namelist())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    component = bill["metadata"]["component"]
    assert component["purl"] == "pkg:pypi/hnswlib@0.8.0%2Bcpu.avx2"
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert scopes == {
        "hnswlib.libs/libgomp-1.so": "required", "setuptools": "excluded", "pybind11": "excluded",
    }  # fmt: skip
    problems = check_wheel(
        stored.path, target=plans.make_target(), package="hnswlib", wheel_version=VERSION
    )
    assert problems == ()


def test_the_same_build_gives_the_same_bytes(built: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):  # of a source tree in two controllers' folders
        source = locked("hnswlib", "0.8.0", "5")
        source = source.model_copy(update={"url": f"file:///{name}/{source.file}"})
        add_sbom(built, tmp_path / name, planned(source=source))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("odd", [{"files": {BILL: b"{}"}}, {"extra": [("y", b"")]}])
def test_a_bill_that_the_node_wrote_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    """And a wheel that no build of fleetbuild made, whose RECORD is not the last file."""
    built = make_wheel(tmp_path / "built", "hnswlib", VERSION, TAG, **odd)
    with pytest.raises(AuditError, match="takes no bill of materials"):
        add_sbom(built, tmp_path / built.name, planned())


@pytest.mark.parametrize("end", [b'"x.libs/l.so",sha256=A,1\n', b"{info}/RECORD.jws,,\xff\n"])
def test_a_record_is_read_as_the_audit_reads_it(tmp_path: Path, end: bytes) -> None:
    """Also where it has a row twice, of which one has no hash, or bytes that are not UTF-8."""
    files = {"x.py": b"", "x.libs/l.so": b"1"}
    info = f"hnswlib-{VERSION}.dist-info"
    built = make_wheel(tmp_path / "built", "hnswlib", VERSION, TAG, files)
    with zipfile.ZipFile(built) as archive:
        record = archive.read(f"{info}/RECORD")
    record = end.replace(b"{info}", info.encode()) + record
    made = make_wheel(tmp_path, "hnswlib", VERSION, TAG, files, replace={"{info}/RECORD": record})
    assert audit_wheel(made).problems == ()
    add_sbom(made, tmp_path / "out.whl", planned())
    with zipfile.ZipFile(tmp_path / "out.whl") as archive:
        assert archive.read(f"{info}/RECORD").count(b"x.libs/l.so") == 1


def test_a_published_wheel_keeps_its_bytes(store: Store, built: Path) -> None:
    wheel = planned(published=locked("hnswlib", "0.8.0", "9"), source=None)
    kept = store.add(built, wheel, built_on="published", seconds=0)
    assert kept.path.read_bytes() == built.read_bytes()
    report = provenance_of(kept.path, store)
    assert report.statement["predicate"]["buildDefinition"]["buildType"].endswith("published/v1")
    assert not report.failed


def states(report: Any) -> dict[str, str]:
    return {check.name: check.state for check in report.checks}


def test_without_a_key_only_the_hash_is_compared(store: Store, stored: StoredWheel) -> None:
    for name in (stored.path, stored.sha256[:12], f"hnswlib=={VERSION}"):
        assert states(provenance_of(name, store)) == {"hash": "ok", "signature": "unknown"}


def test_the_signature_of_a_statement_is_of_one_key_and_one_text(
    store: Store, built: Path, tmp_path: Path
) -> None:
    for name in ("ours", "other"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True)
    ours, other = (
        config_model().model_validate({"signing": {"key": name}}) for name in ("ours", "other")
    )
    context = replace(CONTEXT, sign=release_signer(ours, tmp_path))
    stored = store.add(built, planned(), built_on="gpu-1", seconds=90, context=context)

    def signature(config: Config) -> str:
        return states(provenance_of(stored.path, store, config, tmp_path))["signature"]

    assert (signature(ours), signature(other)) == ("ok", "failed")
    statement = stored.path.with_name(f"{stored.path.name}.intoto.json")
    statement.write_text(statement.read_text().replace("gpu-1", "gpu-2"))
    assert signature(ours) == "failed"
    (tmp_path / "ours.pub").unlink()
    assert signature(ours) == "failed"


def test_another_file_is_found_by_its_hash(store: Store, stored: StoredWheel) -> None:
    stored.path.write_bytes(stored.path.read_bytes() + b"x")
    assert states(provenance_of(stored.path, store))["hash"] == "failed"


def test_exports_carry_the_provenance(tmp_path: Path, store: Store, built: Path) -> None:
    stored = store.add(built, planned(), built_on="a", seconds=1)
    file = ReleaseFile(name="hnswlib", path=stored.path, sha256=stored.sha256)
    write_index(tmp_path / "out", [file])
    report = provenance_of(tmp_path / "out" / "files" / built.name, Store(tmp_path / "no"))
    assert states(report)["hash"] == "ok"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"predicate": 1}', "[" * 9000, '"\ud7ff'])
def test_a_damaged_statement_is_a_sentence(stored: StoredWheel, store: Store, text: str) -> None:
    stored.path.with_name(f"{stored.path.name}.intoto.json").write_text(text)
    with pytest.raises(UsageError, match="is not a provenance statement"):
        provenance_of(stored.path, store)


def test_a_statement_of_other_types_is_shown(store: Store, stored: StoredWheel) -> None:
    path = stored.path.with_name(f"{stored.path.name}.intoto.json")
    document = json.loads(path.read_text())
    document["predicate"]["runDetails"]["builder"]["builderDependencies"] = 5
    document["predicate"]["buildDefinition"]["resolvedDependencies"] = 5
    document["predicate"]["buildDefinition"]["externalParameters"]["target"]["sms"] = 5
    path.write_text(json.dumps(document))
    lines = provenance_lines(provenance_of(stored.path, store), every_file=True)
    assert "  built with    0 requirements, each by hash" in lines


def test_the_command(store: Store, stored: StoredWheel, built: Path) -> None:
    def run(*args: object):
        state = ("--state-dir", str(store.root.parent))
        return CliRunner().invoke(app, ["provenance", *map(str, args), *state])

    shown = run(stored.path)
    present = "gcc 12.2.0 (present), as planned"
    assert f"\n  compiler      {present}\n" in shown.stdout
    assert shown.exit_code == 0
    for word in ("hnswlib 0.8.0+cpu.avx2", "gpu-1", "generic", "-O3 -mavx2", "2 requirements"):
        assert word in shown.stdout
    assert "setuptools" in run(stored.path, "-v").stdout
    document = json.loads(run("hnswlib", "--json").stdout)
    assert document["ok"]
    assert document["statement"]["subject"][0]["digest"]["sha256"] == stored.sha256
    unknown = run(built)
    assert (unknown.exit_code, "--state-dir" in unknown.stderr) == (2, True)
    assert run("nonsense").exit_code == 2
    stored.path.with_name(stored.path.name).write_bytes(built.read_bytes())
    failed = run(stored.path)
    assert (failed.exit_code, "FAILED" in failed.stdout) == (7, True)
