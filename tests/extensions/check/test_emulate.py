"""What follows from how a script ran on this machine and under QEMU."""

import ast
import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from fleetbuild.errors import BlockedError
from fleetbuild.extensions.check import emulate, emulated_steps, results
from fleetbuild.extensions.check.emulate import read_outcome, require_emulation
from fleetbuild.extensions.check.machine_kinds import named_kinds
from fleetbuild.extensions.check.qemu_cpus import qemu_cpu
from fleetbuild.extensions.check.results import EmulatedRun, combine
from fleetbuild.hardware.cpu_models import CPU_MODELS
from fleetbuild.models.verdict import Verdict
from tests.factories.files import make_wheel

RUNS = Verdict(verdict="runs")
DOUBT = Verdict(verdict="dies-in-use", where="demo/_c.so uses avx2 in `f`")
FINE = {"code": 0, "out": "import demo\nuse\ndone\n", "errors": ""}
SIGILL = -signal.SIGILL


def outcome(emulated, native=FINE, static=RUNS, kind="IvyBridge"):
    (kind,) = named_kinds([kind])
    ran = read_outcome(
        native, {"errors": "", **emulated}, frozenset({"demo"}), frozenset(kind.features)
    )
    return combine(run_of(ran, exercised=True), static, kind.features)


def run_of(verdict, *, exercised):
    return EmulatedRun(
        cpu="", qemu="7.2", python="cp311", uses=(), exercised=exercised, verdict=verdict
    )


def stack(package):
    return f'Fatal Python error: Illegal instruction\n  File "/env/{package}/__init__.py", line 1\n'


@pytest.mark.parametrize(
    ("emulated", "said", "words"),
    [
        (FINE, "runs", None),
        ({"code": SIGILL, "out": "import demo\n"}, "dies-at-import", "in import demo"),
        ({"code": SIGILL, "out": "import demo\nuse\n"}, "dies-in-use", "while it is used"),
        ({"code": SIGILL, "out": "use\nuse as given\n"}, "dies-in-use", "in the given use"),
        (
            {"code": SIGILL, "out": "import demo\n", "errors": stack("other")},
            "undecided",
            "it uses other, which dies",
        ),
        (
            {"code": SIGILL, "out": "import demo\n", "errors": stack("demo")},
            "dies-at-import",
            "demo",
        ),
        (
            {
                "code": 0,
                "out": "import demo\nfailed\tdemo\t/env/demo/a.py\tRuntimeError: no AVX2\n",
            },
            "refuses",
            "RuntimeError: no AVX2",
        ),
        (  # IvyBridge has AVX
            {"code": 0, "out": "import demo\nfailed\tdemo\t/env/demo/a.py\tRuntimeError: no AVX\n"},
            "undecided",
            "RuntimeError: no AVX, which names no feature that this CPU lacks",
        ),
        (
            {"code": 0, "out": "import demo\nfailed\tdemo\t/env/demo/a.py\tOSError: x_avx2.so\n"},
            "undecided",
            "OSError",
        ),
        (
            {"code": 0, "out": "import demo\nfailed\tdemo\t/env/dep/a.py\tRuntimeError: no AVX\n"},
            "undecided",
            "it imports dep, which refuses",
        ),
        (
            {"code": -6, "out": "import demo\n", "errors": "F: built with FMA instructions\n"},
            "refuses",
            "FMA instructions",
        ),
        (
            {"code": -6, "out": "import demo\n", "errors": "F: too many instructions\n"},
            "undecided",
            "code -6",
        ),
        ({"code": -11, "out": "import demo\n"}, "undecided", "code -11"),
        ({"code": None, "out": "import demo\n"}, "undecided", "too long"),
    ],
)
def test_the_end_of_a_run_decides(emulated, said, words):
    found = outcome(emulated)
    assert (found.verdict, found.evidence) == (said, "emulated")
    assert words is None or words in found.where


@pytest.mark.parametrize(
    ("message", "cpu", "lacking"),
    [
        (  # numpy
            "baseline optimizations: (X86_V2) but your machine doesn't support: (X86_V2).",
            "none",
            True,
        ),
        ("NumPy was built with baseline optimizations: (X86_V2)", "Haswell", False),
        ("The TensorFlow library was compiled to use AVX instructions", "Nehalem", True),
        ("Missing required CPU features: fma, bmi1, lzcnt", "IvyBridge", True),
        ("this needs x86-64-v3.", "IvyBridge", True),
        ("SSE4.2 and POPCNT are needed", "IvyBridge", False),
        ("your CPU is not supported", "Nehalem", False),
        ("cannot enable executable stack", "Nehalem", False),
    ],
)
def test_a_refusal_names_a_feature_that_the_cpu_lacks(message, cpu, lacking):
    features = frozenset() if cpu == "none" else named_kinds([cpu])[0].features
    assert emulate.names_lacking_feature(message, features) == lacking


def test_a_run_that_ends_early_decides_nothing():
    early = {"code": 0, "out": "import demo\n"}  # os._exit(0) in an import
    assert outcome(early).verdict == "undecided"
    assert outcome(FINE, native={**early, "errors": ""}).verdict == "undecided"


def test_what_fails_on_this_machine_too_decides_nothing():
    failed = "import demo\nfailed\tdemo\t/env/demo/a.py\tImportError: libGL\nuse\ndone\n"
    both = {"code": 0, "out": failed, "errors": ""}
    assert outcome(both, native=both).verdict == "runs"
    dead = {"code": 1, "out": "use\nuse as given\n", "errors": "Traceback\nNameError: x"}
    verdict = outcome(FINE, native=dead)
    assert verdict.verdict == "undecided"
    assert verdict.where == "it fails on this machine, too, in the given use: NameError: x"


def test_code_that_a_small_use_did_not_reach_stays_undecided():
    found = outcome(FINE, static=DOUBT)
    assert found.verdict == "undecided"
    lazy = DOUBT.model_copy(update={"verdict": "dies-at-import"})  # of a file that nothing loaded
    assert outcome(FINE, static=lazy).verdict == "undecided"
    assert "avx2 in `f`" in found.where


def test_a_dispatcher_that_reading_could_not_follow_is_decided_by_a_run():
    static = Verdict(verdict="undecided", where="c.so uses avx2", features=("avx2",), checks=True)
    found = outcome(FINE, static=static)
    assert (found.verdict, found.evidence) == ("runs", "emulated")
    assert "not reached: c.so uses avx2" in found.where
    assert outcome(FINE, static=static, kind="Skylake-Server").verdict == "undecided"
    unread = static.model_copy(update={"checks": False})
    assert outcome(FINE, static=unread).verdict == "undecided"


def test_a_dispatcher_of_a_package_without_a_known_use_stays_undecided():
    static = Verdict(verdict="undecided", where="c.so uses avx2", features=("avx2",), checks=True)
    (kind,) = named_kinds(["IvyBridge"])
    ran = Verdict(verdict="runs", evidence="emulated")
    found = combine(run_of(ran, exercised=False), static, kind.features)
    assert found.verdict == "undecided"
    assert "no use of it is known" in found.where


def test_a_run_that_decides_nothing_does_not_hide_a_death_that_was_read():
    assert outcome({"code": None, "out": "import demo\n"}, static=DOUBT) == DOUBT


def test_a_run_that_decides_nothing_does_not_hide_a_question_about_the_gpu():
    static = Verdict(verdict="undecided", where="demo/_c.so has only PTX (of SM 8.0) for SM 8.6")
    found = outcome({"code": None, "out": "import demo\n"}, static=static)
    assert (found.verdict, found.evidence) == ("undecided", "emulated")
    assert found.where == f"it took too long (at: import demo); {static.where}"


def test_code_for_features_that_qemu_lacks_is_said_to_be_read_only():
    found = outcome(FINE, kind="Skylake-Server")
    assert (found.verdict, found.evidence) == ("runs", "static")
    assert "avx512" in found.where


def test_files_named_for_a_level_are_left_to_their_dispatcher(tmp_path):
    files = ("demo/__init__.py", "demo/_c.abi3.so", "demo/_c_avx2.abi3.so", "demo/tests/_t.abi3.so")
    wheel = make_wheel(tmp_path, files=dict.fromkeys(files, b""))
    assert emulate._modules(wheel) == ["demo", "demo._c"]


@pytest.mark.parametrize("lost", ["qemu", "sandbox"])
def test_what_emulation_needs_is_named(monkeypatch, lost):
    monkeypatch.setattr(emulate.shutil, "which", lambda _: None if lost == "qemu" else "/usr/bin/x")
    monkeypatch.setattr(emulate, "why_unavailable", lambda: "this machine does not allow one")
    with pytest.raises(BlockedError) as caught:
        require_emulation()
    assert {"qemu": "apt-get install", "sandbox": "run it as root"}[lost] in caught.value.fix


@pytest.mark.skipif(not shutil.which("qemu-x86_64-static"), reason="no QEMU here")
@pytest.mark.skipif(emulate._machine() != "x86_64", reason="QEMU runs this machine's programs")
@pytest.mark.parametrize(
    ("cpu", "name", "model"),
    [("IvyBridge", "Ivy Bridge", ("6", "58")), ("Conroe", "Conroe", ("6", "15"))],
)
def test_a_run_reads_the_imitated_cpu_in_proc_cpuinfo(cpu, name, model, capsys):
    (kind,) = named_kinds([cpu])
    work = emulate.work_for(kind, "print(open('/proc/cpuinfo').read())")
    emulated_steps.main(json.dumps({**work, "python": sys.executable}))
    answer = json.loads(capsys.readouterr().out)["try"]
    native = Path("/proc/cpuinfo").read_text().splitlines()[0]
    assert answer["native"]["out"].startswith(native)
    rows = dict(
        map(str.strip, line.split(":"))
        for line in answer["emulated"]["out"].splitlines()
        if ":" in line
    )
    assert name in rows["model name"]
    assert (rows["cpu family"], rows["model"]) == model
    flags = set(rows["flags"].split())
    assert kind.features - flags == frozenset()
    assert ("avx" in flags, "avx2" in flags) == ("avx" in kind.features, False)


def test_qemu_is_asked_for_a_cpu_with_nothing_beyond():
    assert qemu_cpu("x86_64", CPU_MODELS["IvyBridge"].features) == "IvyBridge"
    without = CPU_MODELS["Haswell"].features - {"fma", "sse4_1"}
    assert qemu_cpu("x86_64", without) == "Haswell-noTSX,-fma,-sse4.1"
    assert qemu_cpu("aarch64", frozenset({"asimd"})) is None


def test_each_known_use_does_something_with_a_package() -> None:
    """A use that only imports would let code count as tried that never ran."""
    for package, use in results._uses().items():
        assert package == canonicalize_name(package)
        lines = ast.parse(use).body
        assert emulate._imports(use), package
        assert not all(isinstance(line, ast.Import | ast.ImportFrom) for line in lines), package


@pytest.mark.parametrize(
    "said",
    ['{"try": []}', "[]", "1e999", '{"try": {"native": 1, "emulated": []}}',
     '{"try": {"native": {"code": 0, "out": ""}, "emulated": {"code": [], "out": "done"}}}',
     '{"try": {"native": {"code": 0, "out": ""}, "emulated": {"code": 1e999, "out": ""}}}'],
)  # fmt: skip
def test_an_answer_that_the_wheels_code_wrote_decides_nothing(tmp_path, monkeypatch, said):
    monkeypatch.setattr(emulate, "run_confined", lambda *_, **__: said)
    monkeypatch.setattr(emulate, "work_for", lambda *_: {})
    (kind,) = named_kinds(["Haswell"])
    found = emulate.run_emulated(kind, "demo", make_wheel(tmp_path), tmp_path)
    assert found.verdict == "undecided"
