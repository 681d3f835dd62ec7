"""The command line of a check, and of an audit for a kind of machine."""

import json
from pathlib import Path

import pytest

from fleetbuild.models.verdict import DEATHS
from tests.factories.data import DATA
from tests.factories.elf import make_elf
from tests.factories.files import make_sdist, make_wheel

TAG = "py3-none-manylinux_2_17_x86_64"
VPADDD_YMM = bytes.fromhex("c5f5fec2")


@pytest.fixture
def index(index: Path) -> Path:
    """The folder that is the only index, with one wheel that uses AVX2."""
    make_wheel(index, "demo", "1.0", TAG, {"demo/_c.so": make_elf(VPADDD_YMM)})
    return index


@pytest.mark.usefixtures("index")
def test_the_table_names_what_dies_and_where(run):
    result = run("check", "demo", "--for", "IvyBridge", "--for", "Haswell")
    assert result.exit_code == 7, result.stderr
    assert result.stderr == f"reading demo-1.0-{TAG}.whl\n"  # progress, without a terminal
    assert "demo 1.0" in result.stdout
    assert "dies in use on IvyBridge: demo/_c.so uses avx2 in `kernel`" in result.stdout
    assert "instead: no other version is known to run there" in result.stdout
    assert run("check", "demo", "--for", "Haswell").exit_code == 0


def test_json_is_the_document_alone(run, index):
    (index.parent / "r.txt").write_text("demo\n")
    result = run("check", "-r", "r.txt", "--for", "avx", "--json")
    assert result.exit_code == 7
    (row,) = json.loads(result.stdout)["packages"]
    assert (row["kind"], row["verdict"], row["evidence"]) == ("avx", "dies-in-use", "static")


def test_a_long_symbol_is_cut_for_people_and_whole_in_json(run, index):
    symbol = f"_ZN4demo{'x' * 90}Ev"
    make_wheel(index, "demo", "1.0", TAG, {"demo/_c.so": make_elf(VPADDD_YMM, symbol=symbol)})
    cut = f"`{symbol[:59]}…`"
    assert cut in run("check", "demo", "--for", "avx").stdout.replace("\n", "")
    assert f"`{symbol}`" in run("check", "demo", "--for", "avx", "--json").stdout
    (wheel,) = index.iterdir()
    assert cut in run("audit", wheel, "--for", "avx").stdout.replace("\n", "")
    assert f"`{symbol}`" in run("audit", wheel, "--for", "avx", "--json").stdout


@pytest.mark.usefixtures("index")
def test_markdown_and_annotations(run):
    markdown = run("check", "demo", "--for", "IvyBridge", "--format", "markdown").stdout
    assert "| package | IvyBridge |" in markdown
    assert "| demo 1.0 | dies in use |" in markdown
    github = run("check", "demo", "--for", "IvyBridge", "--format", "github").stdout
    assert github.startswith("::error title=demo 1.0::dies in use on IvyBridge")
    assert run("check", "demo", "--json", "--format", "github").exit_code == 2


def test_sarif_is_an_alert_at_the_line_that_asks_for_a_package_else_at_its_wheel(run, index):
    make_sdist(index, "bare")
    (index.parent / "r.txt").write_text("# ours\n\nBare\n")
    done = run("check", "-r", "r.txt", "demo", "--for", "avx", "--for", "avx2", "--format", "sarif")
    assert done.exit_code == 7, done.stderr
    document = json.loads(done.stdout)
    assert (document.keys(), document["version"]) == ({"$schema", "version", "runs"}, "2.1.0")
    (scan,) = document["runs"]
    driver = scan["tool"]["driver"]
    assert driver["name"] == "fleetbuild check"
    rules = {rule["id"]: rule["defaultConfiguration"]["level"] for rule in driver["rules"]}
    assert rules == {"undecided": "warning"} | dict.fromkeys(DEATHS, "error")
    places = {}
    for result in scan["results"]:
        assert rules[result["ruleId"]] == result["level"]
        (location,) = result["locations"]
        text = result["message"]["text"]
        places[result["ruleId"]] = text.partition(":")[0], location["physicalLocation"]
    assert places == {
        "undecided": (
            "bare not decided on avx, avx2",
            {"artifactLocation": {"uri": "r.txt"}, "region": {"startLine": 3}},
        ),
        "dies-in-use": (
            "demo 1.0 dies in use on avx",
            {"artifactLocation": {"uri": f"demo-1.0-{TAG}.whl"}},
        ),
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["demo", "--for", "IvyBrige"], "Did you mean IvyBridge"),
        (["demo", "--for", "AVX-3"], "Did you mean avx"),
        (["-r", "none.txt", "--for", "avx"], "none.txt does not exist"),
        (["--lock", "none.lock", "--for", "avx"], "none.lock does not exist"),
        (["--for", "avx"], "Nothing to check"),
        (["demo", "--use", "import demo"], "Add --emulate"),
        (["--core", "none"], "none cannot be read: No such file"),
        (["demo", "--core", "none"], "--core explains a crash"),
        (["demo", "--limit", "gpu", "--for", "avx"], "needs an INVENTORY"),
    ],
)
@pytest.mark.usefixtures("index")
def test_bad_use_is_explained(run, args, words):
    result = run("check", *args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.usefixtures("index")
def test_a_folder_named_as_a_requirement_is_one(run, here):
    (here / "demo").mkdir()
    result = run("check", "six", "demo", "--for", "Haswell", "--json")
    assert "six" in result.stderr  # which the index does not have
    (row,) = json.loads(run("check", "demo==1.0", "demo", "--for", "Haswell", "--json").stdout)[
        "packages"
    ]
    assert row["name"] == "demo"
    inventory = run("check", "demo", "./demo", "--json")
    assert inventory.exit_code != 0
    assert "demo" in inventory.stderr


@pytest.mark.usefixtures("index")
def test_the_ending_counts_in_words(run):
    said = run("check", "demo", "--for", "Haswell").stdout
    assert "Verdicts, one for each file and kind: runs 1." in said


@pytest.mark.usefixtures("index")
def test_an_inventory_gives_the_kinds_and_a_node_is_one(run):
    result = run("check", "demo", DATA / "fleet.yml", "--facts", DATA / "fleet", "--json")
    assert result.exit_code in (4, 7), result.stderr
    kinds = {row["kind"] for row in json.loads(result.stdout)["packages"]}
    assert any(kind.startswith("sm") for kind in kinds)
    said = run("check", "demo", DATA / "fleet.yml", "--facts", DATA / "fleet").stdout
    assert said.splitlines()[-1] == "A plan joins groups that its packages do not tell apart."


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("x86-64-v2", 7, "dies in use: demo/_c.so uses avx2"),
        ("avx2", 0, "runs"),
        ("nonsense", 2, ""),
    ],
)
def test_the_audit_is_a_gate(run, index, kind, code, words):
    (wheel,) = index.iterdir()
    result = run("audit", wheel, "--for", kind)
    assert result.exit_code == code
    assert words in result.stdout


def test_the_worst_of_several_wheels_counts(run, index, tmp_path):
    (dead,) = index.iterdir()
    fine = make_wheel(tmp_path / "dist", "fine", files={"fine.py": b""})
    result = run("audit", fine, dead, fine, "--for", "avx")
    assert result.exit_code == 7
    assert result.stdout.count("fine-1.0-") == 2
    assert run("audit", fine, "--for", "avx").exit_code == 0
    assert run("audit", fine, dead, "--json").exit_code == 2


def test_running_a_wheel_needs_a_kind(run, index):
    (wheel,) = index.iterdir()
    result = run("audit", wheel, "--emulate")
    assert result.exit_code == 2
    assert "--for" in result.stderr


def test_the_audit_of_a_kind_is_in_its_document(run, index):
    (wheel,) = index.iterdir()
    document = json.loads(run("audit", wheel, "--for", "avx", "--json").stdout)
    (verdict,) = document["verdicts"]
    assert (verdict["kind"], verdict["verdict"]) == ("avx", "dies-in-use")


def test_an_environment_is_checked_by_its_files(run, here):
    place = here / "env" / "usr" / "lib" / "python3" / "dist-packages" / "demo"
    place.mkdir(parents=True)
    (place / "_c.so").write_bytes(make_elf(VPADDD_YMM, symbol="PyInit__c"))
    result = run("check", "--env", "env", "--for", "Xeon E5-2650 v2")
    assert result.exit_code == 7
    assert "demo (in no RECORD)" in result.stdout
    assert "is judged as IvyBridge (x86-64-v2 + avx, f16c)" in result.stdout
