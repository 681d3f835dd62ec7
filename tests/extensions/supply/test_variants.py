"""The table of an export: pip and uv install by its commands, and by nothing else."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.extensions.supply.publish import export
from fleetbuild.extensions.supply.variants import write_variants
from fleetbuild.fleet import Fleet
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.environments import installed_by, output_of
from tests.factories.files import stocked
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

SHA256 = re.compile(r"`[0-9a-f]{64}`")


def exported(tmp_path: Path) -> Path:
    plan = with_digest(make_plan())
    fleet = Fleet(state_dir=tmp_path / "state")
    (tmp_path / "state").mkdir()
    stocked(tmp_path / "state", plan)
    fleet.save_plan(plan)
    (index,) = export(fleet.store, tmp_path / "out")
    assert index == tmp_path / "out" / "cpu-avx2-cp311" / "simple"
    return tmp_path / "out"


def test_each_built_wheel_has_a_row(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    (row,) = json.loads((folder / "variants.json").read_text())["variants"]
    wheel = folder / row["file"]
    assert wheel.stat().st_size == row["size"]
    assert (row["group"], row["package"], row["cuda"]) == ("cpu-avx2-cp311", "hnswlib", None)
    assert row["version"] == "0.8.0+cpu.avx2"
    assert row["target"]["features"][:2] == ["abm", "avx"]
    text = (folder / "variants.md").read_text()
    assert f"| `cpu-avx2-cp311` | hnswlib 0.8.0+cpu.avx2 | - | 0.0 MB | `{row['sha256']}` |" in text
    needs = "| `cpu-avx2-cp311` | 3.11 | glibc 2.36 or newer | x86_64: abm avx avx2 bmi1 bmi2 "
    assert needs in text
    assert len(SHA256.findall(text)) == 1


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_the_commands_in_the_table_install_the_wheel(tmp_path: Path, program: str) -> None:
    folder = exported(tmp_path)
    text = (folder / "variants.md").read_text()
    (line,) = re.findall(rf"^{program} .*install .*$", text, re.MULTILINE)
    assert "--require-hashes" in line
    python = installed_by(line.replace("HERE", folder.as_uri()), tmp_path / "venv")
    assert output_of(python, "import hnswlib; print(hnswlib.__version__)") == "0.8.0"


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_a_file_that_was_replaced_in_the_export_is_not_installed(
    tmp_path: Path, program: str
) -> None:
    folder = exported(tmp_path)
    text = (folder / "variants.md").read_text().replace("HERE", folder.as_uri())
    (line,) = re.findall(rf"^{program} .*install .*$", text, re.MULTILINE)
    (wheel,) = (folder / "cpu-avx2-cp311" / "files").glob("*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("hnswlib_extra.py", "evil = True\n")
    page = folder / "cpu-avx2-cp311" / "simple" / "hnswlib" / "index.html"
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    page.write_text(re.sub(r"[0-9a-f]{64}", sha256, page.read_text()))  # the index agrees
    with pytest.raises(AssertionError, match=r"(?i)hash"):
        installed_by(line, tmp_path / "venv")


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_other_packages_of_an_environment_stay(tmp_path: Path, program: str) -> None:
    """As in an environment of conda's or of a project: only the release's files are added."""
    folder = exported(tmp_path)
    text = (folder / "variants.md").read_text().replace("HERE", folder.as_uri())
    (line,) = re.findall(rf"^{program} .*install .*$", text, re.MULTILINE)
    python = installed_by(line, tmp_path / "venv")
    theirs = Path(output_of(python, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (theirs / "theirs.py").write_text("mine = True\n")
    assert installed_by(line, tmp_path / "venv", exists=True) == python
    assert output_of(python, "import hnswlib, theirs; print(theirs.mine)") == "True"


def test_a_row_names_cuda_sms_and_ptx(tmp_path: Path) -> None:
    target = make_target("avx512", sms=("8.9",), ptx="8.9")
    wheel = make_wheel("hnswlib", "0.8.0+cu130.sm89.ptx.avx512", target, cuda="13.0")
    plan = make_plan((make_group(("gpu",), target, (wheel,)),))
    store = stocked(tmp_path, plan)
    (tmp_path / "out").mkdir()
    text = write_variants(plan, store, ["sm89-avx512-cp311"], tmp_path / "out").read_text()
    assert "| hnswlib 0.8.0+cu130.sm89.ptx.avx512 | 13.0 |" in text
    assert text.count("| SM 8.9, driver 580 or newer |") == 1
    (row,) = json.loads((tmp_path / "out" / "variants.json").read_text())["variants"]
    assert (row["target"]["ptx"], row["target"]["sms"]) == ("8.9", ["8.9"])


def test_a_second_export_keeps_the_rows_of_other_groups(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    avx = make_target("avx")
    wheel = make_wheel("hnswlib", "0.8.0+cpu.avx", avx)
    plan = make_plan((make_group(("old",), avx, (wheel,)),))
    store = stocked(tmp_path / "more", plan)
    write_variants(plan, store, ["cpu-avx-cp311"], folder)
    rows = json.loads((folder / "variants.json").read_text())["variants"]
    assert [row["group"] for row in rows] == ["cpu-avx-cp311", "cpu-avx2-cp311"]
    assert (folder / "variants.md").read_text().count("pip install --index-url") == 4
    # A row whose wheel somebody has removed goes, too.
    (folder / rows[1]["file"]).unlink()
    text = write_variants(plan, store, ["cpu-avx-cp311"], folder).read_text()
    assert "cpu-avx2-cp311" not in text


@pytest.mark.parametrize(
    ("of", "key", "value"),
    [
        ("", "version", "one"),
        ("", "package", "x'; touch y #"),
        ("", "group", "x`"),
        ("machine", "isa", "x"),
    ],
)
def test_a_row_of_somebody_else_becomes_no_other_command(
    tmp_path: Path, of: str, key: str, value: str
) -> None:
    table = exported(tmp_path) / "variants.json"
    document = json.loads(table.read_text())
    row = document["variants"][0]
    (row[of] if of else row)[key] = value
    table.write_text(json.dumps(document))
    plan = make_plan()
    with pytest.raises(UsageError, match="not a table that fleetbuild wrote"):
        write_variants(plan, stocked(tmp_path / "more", plan), ["cpu-avx-cp311"], table.parent)


def test_a_foreign_table_is_not_overwritten(tmp_path: Path) -> None:
    plan = make_plan()
    store = stocked(tmp_path, plan)
    (tmp_path / "variants.json").write_text('{"mine": 1}')
    with pytest.raises(UsageError, match="not a table that fleetbuild wrote"):
        write_variants(plan, store, ["cpu-avx2-cp311"], tmp_path)
    assert (tmp_path / "variants.json").read_text() == '{"mine": 1}'
