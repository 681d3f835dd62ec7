"""A whole check, of wheels that are made by hand, from a folder of them."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from benchmarks.readings import pack_readings
from fleetbuild.errors import BlockedError, FleetbuildError, UsageError
from fleetbuild.extensions.check import check_stack, results
from fleetbuild.extensions.check.check_stack import check, judge_wheel
from fleetbuild.extensions.check.emulate import qemu_cpu_of
from fleetbuild.extensions.check.machine_kinds import named_kinds
from fleetbuild.extensions.check.needs import WheelNeeds
from fleetbuild.extensions.check.qemu_cpus import qemu_cpu
from fleetbuild.extensions.check.results import (
    READER,
    EmulatedRun,
    FileResults,
    shipped_runs,
)
from fleetbuild.hardware.cpu_models import CPU_MODELS
from fleetbuild.models import Facts, Libc, Python
from fleetbuild.models.verdict import Verdict
from fleetbuild.plan.resolve.sandbox import SandboxError
from fleetbuild.store.wheels import Store
from tests.factories.elf import make_elf, make_fatbin
from tests.factories.files import make_sdist, make_wheel

VADDPS_YMM, VPADDD_YMM, RET = (bytes.fromhex(code) for code in ("c5f458c2", "c5f5fec2", "c3"))
TAG = "py3-none-manylinux_2_17_x86_64"
KEYS = {"name", "version", "file", "sha256", "kind", "verdict", "where", "evidence", "instead"}
VERDICTS = {"runs", "dies-at-import", "dies-in-use", "refuses", "no-kernel", "undecided"}


def native(folder, version="1.0", code=VPADDD_YMM, name="demo", requires="", **elf):
    return make_wheel(
        folder, name, version, TAG, {f"{name}/_c.so": make_elf(code, **elf)}, requires=requires
    )


def verdicts(report):
    return {(row.name, row.kind): row.verdict for row in report.rows}


def test_a_wheel_dies_where_its_code_needs_more_than_the_cpu_has(index):
    native(index, requires="pure")
    make_wheel(index, "pure", files={"pure.py": b""})
    report = check(["demo"], kinds=["IvyBridge", "Haswell", "avx2"])
    assert verdicts(report) == {
        ("demo", "IvyBridge"): "dies-in-use",
        ("demo", "Haswell"): "runs",
        ("demo", "avx2"): "runs",
        ("pure", "IvyBridge"): "runs",
        ("pure", "Haswell"): "runs",
        ("pure", "avx2"): "runs",
    }
    dead = next(row for row in report.rows if row.dies)
    assert "demo/_c.so uses avx2 in `kernel`" in dead.where
    assert report.exit_code == 7
    assert check(["demo"], kinds=["Haswell"]).exit_code == 0


def test_the_death_of_a_required_package_names_who_asked_for_it(index):
    native(index, code=VADDPS_YMM, name="numpy")  # it refuses as it is imported
    make_wheel(index, "front", files={"front.py": b""}, requires="numpy")
    make_wheel(index, "plain", files={"plain.py": b""}, requires="numpy; extra == 'gpu'")
    report = check(["front", "plain"], kinds=["Nehalem", "Haswell"])
    found = {(row.name, row.kind): row for row in report.rows}
    assert verdicts(report) == {
        ("numpy", "Nehalem"): "refuses", ("numpy", "Haswell"): "runs",
        ("front", "Nehalem"): "refuses", ("front", "Haswell"): "runs",
        ("plain", "Nehalem"): "runs", ("plain", "Haswell"): "runs",
    }  # fmt: skip
    assert found["numpy", "Nehalem"].where.endswith("; required by front")
    assert found["front", "Nehalem"].where == "it requires numpy, which refuses by itself"
    assert found["front", "Nehalem"].native


@pytest.mark.parametrize(
    ("module", "verdict"),
    [
        (b"", "undecided"),
        (b"ctypes.CDLL(f'lib{name}.so' for name in ['gpu_delegate'])", "dies-in-use"),
    ],
)
def test_a_library_that_nothing_in_the_wheel_names_is_not_a_death(index, module, verdict):
    files = {"demo/__init__.py": module, "demo/libgpu_delegate.so": make_elf(VPADDD_YMM)}
    make_wheel(index, "demo", "1.0", TAG, files)
    (row,) = check(["demo"], kinds=["IvyBridge"]).rows
    assert row.verdict == verdict
    assert "demo/libgpu_delegate.so uses avx2" in row.where


def test_the_document_is_the_contract(index):
    native(index)
    make_sdist(index, "bare")
    document = check(["demo", "bare"], kinds=["IvyBridge", "Haswell"]).document()
    assert json.loads(json.dumps(document)) == document
    assert document.keys() == {"format_version", "packages"}
    assert document["format_version"] == "1.0"
    for row in document["packages"]:
        assert row.keys() == KEYS
        assert row["verdict"] in VERDICTS
        assert row["evidence"] in ("static", "emulated", "node")
        assert row["kind"] in ("IvyBridge", "Haswell")
        assert isinstance(row["instead"], list)
    (demo,) = (r for r in document["packages"] if (r["name"], r["kind"]) == ("demo", "Haswell"))
    assert demo["file"] == f"demo-1.0-{TAG}.whl"
    assert len(demo["sha256"]) == 64


def test_the_newest_and_the_nearest_older_version_that_run_are_offered(index):
    native(index, "1.0", VADDPS_YMM)
    native(index, "1.1", VADDPS_YMM)
    native(index, "1.2")
    native(index, "1.3")
    native(index, "1.4", VADDPS_YMM)
    (row,) = check(["demo==1.3"], kinds=["IvyBridge"], instead=True).rows
    assert row.instead == ("demo==1.4", "demo==1.1")


def test_without_asking_only_known_files_are_offered_and_nothing_is_fetched(index, monkeypatch):
    for version, code in (("1.0", VADDPS_YMM), ("1.1", VADDPS_YMM), ("1.3", VPADDD_YMM)):
        native(index, version, code)
    (row,) = check(["demo==1.3"], kinds=["IvyBridge"]).rows
    assert row.instead == ()
    check(["demo==1.0"], kinds=["IvyBridge"])
    fetched = []
    fetch = Store.fetch
    monkeypatch.setattr(Store, "fetch", lambda *args: fetched.append(args) or fetch(*args))
    (row,) = check(["demo==1.3"], kinds=["IvyBridge"]).rows
    assert (row.instead, fetched) == (("demo==1.0",), [])
    (index / f"demo-1.0-{TAG}.whl").unlink()  # the index has another file of it now
    native(index, "1.0", VPADDD_YMM)
    assert check(["demo==1.3"], kinds=["IvyBridge"]).rows[0].instead == ()


def test_a_file_whose_reading_is_shipped_is_not_fetched(
    index, tmp_path, monkeypatch, evidence_folder
):
    native(index)
    make_wheel(index, "pure", files={"pure.py": b""})
    check(["demo", "pure"], kinds=["Haswell"])
    kept = [FileResults.model_validate_json(path.read_bytes())
            for path in evidence_folder.glob("*.json")]  # fmt: skip
    shutil.rmtree(evidence_folder)
    packed = pack_readings(kept)
    shipped = results.unpack_readings(packed)
    assert len(shipped) == 2
    monkeypatch.setattr(results, "_shipped_readings", lambda: shipped)
    monkeypatch.setattr(Store, "fetch", None)
    report = check(["demo", "pure"], kinds=["IvyBridge"], state_dir=tmp_path / "empty")
    assert verdicts(report) == {("demo", "IvyBridge"): "dies-in-use", ("pure", "IvyBridge"): "runs"}
    monkeypatch.setattr(results, "READER", READER + 1)
    assert len(results.unpack_readings(packed)) == 1  # the one without machine code


def test_large_downloads_are_announced(index, monkeypatch):
    native(index)
    monkeypatch.setattr(check_stack, "_LARGE", 10)
    said = []
    check(["demo"], kinds=["Haswell"], progress=said.append)
    assert said[0].startswith("fetching 1 file, ")


def test_the_recipe_is_offered_if_no_version_runs(index):
    native(index, "0.8.0", name="hnswlib")
    (row,) = check(["hnswlib"], kinds=["Nehalem"], instead=True).rows
    assert row.instead == ("build it: recipe hnswlib",)


def test_a_package_without_a_wheel_is_not_decided_and_the_rest_is(index):
    make_sdist(index, "bare")
    native(index)
    report = check(["bare", "demo"], kinds=["Haswell"])
    assert verdicts(report) == {("bare", "Haswell"): "undecided", ("demo", "Haswell"): "runs"}
    bare = report.rows[0]
    assert (bare.file, bare.sha256) == (None, None)
    assert "no wheel" in bare.where
    assert report.exit_code == 0


def test_a_dependency_without_a_wheel_leaves_the_kind_unresolved(index):
    make_sdist(index, "bare")
    native(index, requires="bare")
    report = check(["demo"], kinds=["Haswell"])
    assert report.rows == ()
    assert "bare" in report.unresolved["Haswell"][0]
    assert report.exit_code == 4


def test_a_gpu_without_a_kernel_is_named(index):
    native(index, code=RET, fatbin=make_fatbin((2, 75, 0), (2, 80, 0)))
    report = check(["demo"], kinds=["sm61-avx2-cp311", "sm86-avx2-cp311"])
    assert {row.kind: row.verdict for row in report.rows} == {
        "sm61-avx2-cp311": "no-kernel",
        "sm86-avx2-cp311": "runs",
    }
    assert "6.1" in report.rows[0].where


def test_a_damaged_file_is_never_fine(index):
    make_wheel(index, "demo", "1.0", TAG, {"demo/_c.so": b"\x7fELF" + bytes(9)})
    (row,) = check(["demo"], kinds=["Haswell"]).rows
    assert row.verdict == "undecided"
    assert "demo/_c.so" in row.where


def test_no_evidence_comes_from_a_folder_where_others_write(index, monkeypatch, evidence_folder):
    """They could say that anything runs."""
    native(index)
    check(["demo"], kinds=["IvyBridge"])
    evidence_folder.chmod(0o777)
    read = []
    monkeypatch.setattr(
        check_stack, "read_needs", lambda path: read.append(path) or WheelNeeds(file="f")
    )
    check(["demo"], kinds=["IvyBridge"])
    assert len(read) == 1


def test_a_wheel_that_holds_what_it_may_not_is_not_read(index):
    make_wheel(index, "demo", "1.0", TAG, {"evil.pth": b"import os"})
    (row,) = check(["demo"], kinds=["Haswell"]).rows
    assert (row.verdict, "evil.pth" in row.where) == ("undecided", True)


def test_a_file_is_read_once_for_all_state_folders(index, monkeypatch, evidence_folder):
    native(index)
    first = check(["demo"], kinds=["IvyBridge"])

    def refuse(_):
        raise AssertionError("it was read again")

    monkeypatch.setattr(check_stack, "read_needs", refuse)
    again = check(["demo"], kinds=["IvyBridge"], state_dir="other")
    assert again.document() == first.document()
    (kept,) = evidence_folder.iterdir()
    kept.write_text(kept.read_text().replace(f'"reader":{READER}', f'"reader":{READER - 1}'))
    with pytest.raises(AssertionError, match="read again"):
        check(["demo"], kinds=["IvyBridge"])


def test_a_run_that_came_with_fleetbuild_decides_what_reading_cannot(index, monkeypatch):
    wheel = native(index, name="hnswlib", code=b"\x0f\xa2" + VPADDD_YMM)  # asks the CPU, perhaps
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (kind,) = named_kinds(["IvyBridge"])
    (row,) = check(["hnswlib"], kinds=["IvyBridge"]).rows
    assert (row.verdict, row.evidence, row.run_decides) == ("undecided", "static", True)
    ran = Verdict(verdict="runs", evidence="emulated")
    known = EmulatedRun(
        cpu=qemu_cpu_of(kind),
        qemu="7.2",
        python=kind.python,
        uses=("avx2",),
        exercised=True,
        verdict=ran,
    )
    before = known.model_copy(update={"exercised": False})  # a use is known since
    shipped = {sha256: FileResults(sha256=sha256, file=wheel.name, runs=(before,))}
    for module in (results, check_stack):
        monkeypatch.setattr(module, "shipped_runs", lambda: shipped)
    (row,) = check(["hnswlib"], kinds=["IvyBridge"]).rows
    assert (row.verdict, row.evidence, row.run_decides) == ("undecided", "static", True)
    shipped[sha256] = shipped[sha256].with_run(known)
    assert judge_wheel(wheel, ["IvyBridge"])["IvyBridge"].verdict == "runs"
    (row,) = check(["hnswlib"], kinds=["IvyBridge"]).rows
    assert (row.verdict, row.evidence, row.run_decides) == ("runs", "emulated", False)
    # Its code uses AVX2 alone, so it cannot tell these CPUs apart; Haswell it can.
    (row,) = check(["hnswlib"], kinds=["avx"]).rows
    assert (row.verdict, row.evidence) == ("runs", "emulated")
    unclear = known.model_copy(update={"verdict": Verdict(verdict="undecided")})
    alike = FileResults(sha256=sha256, file=wheel.name, runs=(unclear,))
    assert alike.on_cpu(kind.features, kind.python) == unclear
    assert alike.on_cpu(kind.features - {"rdrand"}, kind.python) is None
    (row,) = check(["hnswlib"], kinds=["Haswell"]).rows
    assert (row.verdict, row.evidence) == ("runs", "static")


def test_no_run_is_proposed_where_qemu_cannot_imitate_the_cpu(index):
    native(index, code=bytes.fromhex("0fa262f27d488dc0"), name="hnswlib")  # cpuid, avx512vbmi
    rows = check(["hnswlib"], kinds=["IvyBridge", "skylake-avx512"]).rows
    assert {row.kind: (row.verdict, row.run_decides) for row in rows} == {
        "IvyBridge": ("undecided", True), "skylake-avx512": ("undecided", False),
    }  # fmt: skip


def test_the_place_that_has_no_wheel_for_a_machine_is_named(index, monkeypatch):
    """uv takes a version from the first place that has it, and asks no later one."""
    make_wheel(index, "other", "1.0", TAG)
    make_sdist(index, "bare")
    (row,) = check(["bare"], kinds=["Haswell"]).rows
    assert f"no wheel in {index}: whoever" in row.where
    assert "package_index: {bare: ADDRESS}" in row.where
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.as_uri())
    (row,) = check(["other==1.0"], kinds=["graviton3"]).rows
    assert f"no wheel in the first of {index} or file://" in row.where


def test_the_runs_that_come_with_fleetbuild_are_of_cpus_that_can_be_named():
    known = {qemu_cpu(model.arch, model.features) for model in CPU_MODELS.values()}
    for each in shipped_runs().values():
        assert {run.cpu for run in each.runs} <= known
        assert {run.verdict.evidence for run in each.runs} == {"emulated"}


@pytest.fixture
def dying(monkeypatch):
    """Each run of a wheel with `evil` beside it dies; return the packages that were run."""
    ran = []

    def run_emulated(_kind, package, _path, environment, given):
        ran.append((package, given) if given else package)
        if "die" in given:
            return Verdict(verdict="dies-in-use", where="given", evidence="emulated")
        if (environment / "evil.py").exists():
            return Verdict(verdict="dies-at-import", where="illegal", evidence="emulated")
        return Verdict(verdict="runs", evidence="emulated")

    monkeypatch.setattr(check_stack, "require_emulation", lambda: None)
    monkeypatch.setattr(check_stack, "why_not_emulated", lambda *_: None)
    monkeypatch.setattr(check_stack, "run_emulated", run_emulated)
    return ran


def test_a_run_beside_another_wheel_decides_nothing_about_the_file_alone(index, dying):
    native(index)
    make_wheel(index, "evil", files={"evil.py": b""})
    stacks = (["demo", "evil"], True), (["demo"], False), (["demo", "evil"], False)
    found = [check(stack, kinds=["Haswell"], emulate=emulate).rows[0] for stack, emulate in stacks]
    assert [(row.name, row.verdict, row.evidence) for row in found] == [
        ("demo", "dies-at-import", "emulated"),
        ("demo", "runs", "static"),
        ("demo", "dies-at-import", "emulated"),
    ]
    assert check(["demo"], kinds=["Haswell"], emulate=True).rows[0].verdict == "runs"
    assert check(["demo", "evil"], kinds=["Haswell"]).rows[0].verdict == "dies-at-import"
    assert dying == ["demo", "demo"]
    # A run alone counts in each stack, as no other wheel could have decided it.
    make_wheel(index, "other", files={"other.py": b""})
    (row, _) = check(["demo", "other"], kinds=["Haswell"]).rows
    assert (row.verdict, row.evidence) == ("runs", "emulated")


def test_a_run_that_could_not_start_is_not_kept(index, dying, monkeypatch):
    native(index)
    steps = (
        (check_stack, "run_emulated", SandboxError("")),
        (Store, "fetch", FleetbuildError("", "")),
    )
    for module, step, problem in steps:
        (row,) = check(["demo"], kinds=["Haswell"]).rows
        assert (row.verdict, row.evidence) == ("runs", "static")
        with monkeypatch.context() as broken:
            broken.setattr(module, step, Mock(side_effect=problem))
            (row,) = check(["demo"], kinds=["Haswell"], emulate=True).rows
        assert (row.verdict, dying) == ("undecided", [])
        assert "it could not be run: " in row.where
    assert check(["demo"], kinds=["Haswell"], emulate=True).rows[0].evidence == "emulated"
    assert dying == ["demo"]


def test_a_given_use_runs_with_what_it_imports_and_is_kept_by_its_text(index, dying):
    native(index)
    make_wheel(index, "pure", files={"pure.py": b""})

    def found(use=None, *, emulate=True):
        rows = check(["demo", "pure"], kinds=["Haswell"], emulate=emulate, use=use).rows
        return [(row.verdict, row.evidence) for row in rows]

    dies, runs = ("dies-in-use", "emulated"), ("runs", "emulated")
    assert found("import demo; die()") == [dies, ("runs", "static")]
    assert found("import demo; die()") == [dies, ("runs", "static")]
    assert found("from pure import die") == [runs, dies]
    assert found("import demo.x, pure") == [runs, runs]
    assert found(emulate=False) == [runs, ("runs", "static")]
    assert dying == [
        ("demo", "import demo; die()"), "demo", ("pure", "from pure import die"),
        ("demo", "import demo.x, pure"), ("pure", "import demo.x, pure"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("import other", "imports no package of this stack"),
        ("1 + 1", "imports nothing"),
        ("", "imports nothing"),
        ("import (", "cannot be read as Python code: invalid syntax"),
        ("none.py", "none.py cannot be read as Python code: No such file"),
    ],
)
@pytest.mark.usefixtures("dying")
def test_a_use_that_cannot_be_run_is_refused(index, use, words):
    native(index)
    with pytest.raises(UsageError, match=words):
        check(["demo"], kinds=["Haswell"], emulate=True, use=use)


def test_a_use_may_be_a_file(index, dying):
    native(index)
    Path("use").write_text("import demo\n")
    check(["demo"], kinds=["Haswell"], emulate=True, use="use")
    assert dying == [("demo", "import demo\n")]


def test_wheels_that_take_each_others_names_are_not_run(index, dying):
    own = {"demo/__init__.py": b"import os", "demo/_c.so": make_elf(VADDPS_YMM)}
    make_wheel(index, "demo", tag=TAG, files=own)
    make_wheel(index, "evil", files={"evil.py": b"", "demo/_distributor_init_local.py": b""})
    demo, _ = check(["demo", "evil"], kinds=["Haswell"], emulate=True).rows
    assert demo.verdict == "undecided"
    assert "its wheels take each other's names: the import name demo belongs to demo-" in demo.where
    assert dying == []


def test_one_wheel_runs_with_what_it_requires(index, monkeypatch):
    make_wheel(index, "pure", files={"pure.py": b""})
    requires = ["pure>=1", "unused ; extra == 'more'"]
    wheel = native(Path("dist"), requires="pure>=1")

    def died(_kind, package, path, environment, _given):
        there = {file.name for file in environment.iterdir()}
        assert (package, path.name) == ("demo", wheel.name)
        assert {"demo", "pure.py"} <= there
        return Verdict(verdict="dies-at-import", where="in import demo", evidence="emulated")

    monkeypatch.setattr(check_stack, "require_emulation", lambda: None)
    monkeypatch.setattr(check_stack, "run_emulated", died)
    verdict = judge_wheel(wheel, ["IvyBridge"], requires=requires, emulate=True)["IvyBridge"]
    assert (verdict.verdict, verdict.evidence) == ("dies-at-import", "emulated")
    assert judge_wheel(wheel, ["IvyBridge"])["IvyBridge"].evidence == "static"


def test_a_wheel_that_cannot_run_here_is_read_and_never_run(index, monkeypatch):
    monkeypatch.setattr(check_stack, "require_emulation", lambda: None)
    monkeypatch.setattr(check_stack, "run_emulated", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(check_stack, "installed", lambda *_: pytest.fail("it was installed"))
    lacking = judge_wheel(native(index), ["IvyBridge"], requires=["nowhere"], emulate=True)
    assert lacking["IvyBridge"].verdict == "undecided"
    assert "nowhere" in lacking["IvyBridge"].where
    other = native(index, "2.0").rename(index / "demo-2.0-cp27-cp27m-manylinux_2_17_x86_64.whl")
    verdict = judge_wheel(other, ["IvyBridge"], emulate=True)["IvyBridge"]
    assert (verdict.verdict, verdict.evidence) == ("dies-in-use", "static")
    assert "cannot install demo-2.0-cp27" in verdict.where


@pytest.mark.usefixtures("index")
def test_without_a_network_nothing_is_decided(monkeypatch):
    monkeypatch.delenv("UV_NO_INDEX")
    monkeypatch.delenv("UV_FIND_LINKS")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(BlockedError, match="index"):
        check(["demo"], kinds=["Haswell"])


def test_the_groups_of_a_fleet_are_kinds(index):
    native(index)
    python = Python(path="/usr/bin/python3", version="3.11.2", soabi="cpython-311-x86_64-linux-gnu")
    common = {"arch": "x86_64", "pythons": (python,), "libc": Libc(family="glibc", version="2.36")}
    old = Facts(isa="avx", features=("avx", "popcnt"), **common)
    new = Facts(isa="avx2", features=("avx", "avx2", "popcnt"), **common)
    facts = {"a": old, "b": new, "c": new, "d": Facts(state="unreachable", reason="no route")}
    report = check(["demo"], facts=facts)
    assert {row.kind: row.verdict for row in report.rows} == {
        "cpu-avx-cp311": "dies-in-use",
        "cpu-avx2-cp311": "runs",
    }
    assert check(["demo"], facts=facts, kinds=["a"]).rows[0].verdict == "dies-in-use"
    with pytest.raises(BlockedError, match="no route"):
        check(["demo"], facts=facts, kinds=["d"])


@pytest.mark.usefixtures("index")
def test_nothing_or_two_things_to_check_are_refused():
    with pytest.raises(UsageError, match="Nothing"):
        check([], kinds=["Haswell"])
    Path("uv.lock").write_text("package = []")
    with pytest.raises(UsageError, match="More than one stack"):
        check(["demo"], lock=Path("uv.lock"), kinds=["Haswell"])


def test_no_ansible_is_imported(index):
    native(index)
    code = (
        "import sys; from fleetbuild.extensions.check.check_stack import check;"
        "check(['demo'], kinds=['Haswell']);"
        "print(*[m for m in sys.modules if m.split('.')[0] in ('ansible', 'ansible_runner')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
