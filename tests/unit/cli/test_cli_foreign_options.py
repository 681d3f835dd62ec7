"""What users of Ansible and Terraform type is taken, or answered with the right command."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from fleetbuild import Fleet
from fleetbuild.cli.options import NodeOptions
from fleetbuild.cli.session import read_secrets
from fleetbuild.errors import UsageError
from fleetbuild.journal import Journal
from fleetbuild.models import NodeResult, NodeStatus
from fleetbuild.models import Result as RunResult

DATA = Path(__file__).parents[1] / "data"
FLEET, CAPTURES = DATA / "fleet.yml", DATA / "fleet"
Run = Callable[..., Result]


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_OFFLINE", "1")


@pytest.mark.usefixtures("no_index")
def test_plan_accepts_i_and_out(run: Run, here: Path) -> None:
    words = ("--facts", CAPTURES, "--package", "hnswlib==0.8.0", "--limit", "avx-old")
    assert run("plan", "-i", FLEET, "-out=a.json", *words).exit_code == 0
    assert run("plan", f"--inventory={FLEET}", "-out", "b.json", *words).exit_code == 0
    assert (here / "a.json").exists()
    assert (here / "b.json").exists()
    assert run("plan", "-i", FLEET, FLEET, *words).exit_code == 2
    refused = run("apply", "a.json", "--limit", "avx-old")
    assert refused.exit_code == 2
    assert f"fleetbuild apply {FLEET} --limit avx-old" in refused.stderr
    assert refused.stderr.startswith("error: --limit does not go with a saved plan")


@pytest.mark.parametrize(
    ("states", "code"),
    [(("none",), 0), (("none", "missing"), 10), (("missing", "gone"), 3)],
)
def test_status_tells_drift_by_its_exit_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, states: tuple[str, ...], code: int
) -> None:
    found = {
        f"n{number}": NodeStatus(node=f"n{number}", state="unreachable")
        if state == "gone"
        else NodeStatus(node=f"n{number}", state="ok", drift=state)
        for number, state in enumerate(states)
    }
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: found)
    assert run("status", FLEET, "--detailed-exitcode").exit_code == code
    Journal(Path(".fleetbuild/journal/a.jsonl")).note("run started")  # and killed
    result = run("status", FLEET)
    assert result.exit_code == (3 if "gone" in states else 0)
    assert "stopped before its end. To go on with it: fleetbuild apply\n" in result.stderr


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("apply", "--check"), "fleetbuild plan"),
        (("apply", "-i", FLEET, "-C"), f"fleetbuild plan {FLEET}"),
        (("apply", "a.json", "-C"), "run: fleetbuild plan"),
        (("verify", FLEET, "--check"), f"fleetbuild status {FLEET}"),
        (("apply", "p.json", "-o", "x"), "fleetbuild plan --out FILE"),
        (("apply", FLEET, "-l", "a*", "-C"), f"fleetbuild plan {FLEET} --limit 'a*'"),
        (("rollback", FLEET, "-C"), f"fleetbuild rollback {FLEET}."),
        (("remove", FLEET, "--dry-run"), f"what it would remove, run: fleetbuild remove {FLEET}."),
        (("plan", FLEET, "-u", "root"), "ansible_user"),
        (("facts", FLEET, "--become"), "ansible_become"),
        (("apply", FLEET, "--dry-run"), f"fleetbuild plan {FLEET}"),
        (("apply", FLEET, "--tags", "build"), "--limit PATTERN"),
        (("verify", FLEET, "-r", "requirements.txt"), f"fleetbuild plan {FLEET} -r FILE"),
        (("plan", FLEET, "--extra-index-url", "x"), "index: in fleetbuild.yml"),
    ],
)
def test_unsupported_options_are_answered_with_the_right_command(
    run: Run, words: tuple[str, ...], answer: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    error, fix = result.stderr.splitlines()
    assert error.startswith(f"error: fleetbuild {words[0]} has no option -")
    assert answer in fix


@pytest.mark.parametrize(
    ("words", "refusal", "values"),
    [
        (("emit", "foo"), "emit does not accept 'foo' as a kind", "Use one of: k8s, labels,"),
        (("emit", "k8s", "--way", "a"), "k8s does not accept 'a' as --way", "one of: hostpath, im"),
        (("plan", FLEET, "--timeout", "x"), "plan does not accept this value as --t", "a number"),
        (("plan", FLEET, "r.txt"), "plan takes one argument, and r.txt is another", "-r r.txt"),
        (("apply", FLEET, "a==1", "b"), "apply takes one argument, and a==1 is", "--package a==1"),
        (("plan", FLEET, "--package", "a=1"), "'a=1' is not a package", "Write a==1."),
        (("verify", FLEET, "-f0"), "verify does not accept this value as --forks", "Use a whole"),
    ],
)
def test_an_invalid_value_is_answered_with_the_valid_ones(
    run: Run, words: tuple[str, ...], refusal: str, values: str
) -> None:
    result = run(*words)
    assert result.exit_code == 2
    error, fix = result.stderr.splitlines()
    assert refusal in error
    assert values in fix


@pytest.mark.parametrize("words", [("-i", ""), ("--inventory=",)])
def test_an_empty_inventory_option_does_not_mean_the_last_plan(
    run: Run, words: tuple[str, ...]
) -> None:
    result = run("apply", *words, "--yes")
    assert result.exit_code == 2
    assert "of fleetbuild apply names no inventory.\nfix: Name one." in result.stderr


@pytest.mark.usefixtures("no_index")
def test_apply_offers_the_packages_of_the_last_plan_and_keeps_that_unless_agreed(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("plan", FLEET, "--facts", CAPTURES, "--package", "hnswlib==0.8.0")
    before = (here / ".fleetbuild" / "plan.json").read_text()
    refused = run("apply", FLEET)
    assert refused.exit_code == 2
    assert f"fleetbuild apply {FLEET} --package hnswlib==0.8.0" in refused.stderr
    monkeypatch.setattr(Fleet, "_probe_all", Fleet.probe, raising=False)
    monkeypatch.setattr(Fleet, "probe", lambda fleet, **_: fleet._probe_all(captures=CAPTURES))
    unasked = run("apply", FLEET, "--package", "hnswlib==0.7.0")
    assert f"fleetbuild apply {FLEET} --yes --package hnswlib==0.7.0" in unasked.stderr
    monkeypatch.setattr("fleetbuild.cli.steps.at_terminal", lambda: True)
    answered = run("apply", FLEET, "--package", "hnswlib==0.7.0", stdin="n\n")
    assert answered.stdout.endswith("Nothing was changed.\n")
    assert (here / ".fleetbuild" / "plan.json").read_text() == before


@pytest.mark.parametrize("command", ["plan", "apply"])
@pytest.mark.parametrize(
    ("name", "text"),
    [("empty.json", "{}"), ("empty", "{}"), ("dashes.yml", "---\n# none\n"),
     ("list.yml", "- a\n- b\n"), ("list.json", "[]"), ("group.json", '{"a": null}'),
     ("number.json", '{"a": 1}'), ("result.json", '{"nodes": {"a": {"state": "ok"}}}')],
)  # fmt: skip
def test_an_inventory_without_hosts_is_refused_and_nothing_is_overwritten(
    run: Run, here: Path, command: str, name: str, text: str
) -> None:
    (here / name).write_text(text)
    plan = here / ".fleetbuild" / "plan.json"
    plan.parent.mkdir()
    plan.write_text("the last plan")
    result = run(command, name, "--package", "hnswlib==0.8.0")
    assert result.exit_code == 2
    assert name in result.stderr.splitlines()[-2].removeprefix("error: ")
    assert result.stderr.splitlines()[-1].startswith("fix: ")
    assert (plan.read_text(), (here / name).read_text()) == ("the last plan", text)


def test_the_become_password_comes_from_a_file_or_a_program(here: Path) -> None:
    (here / "text").write_text("geheim\n")
    (here / "program").write_text("#!/bin/sh\necho told\n")
    (here / "program").chmod(0o700)
    assert read_secrets(NodeOptions(become_password_file=here / "text")).become_pass == "geheim"
    assert read_secrets(NodeOptions(become_password_file=here / "program")).become_pass == "told"
    with pytest.raises(UsageError, match=r"from .*missing: No such file or directory\.$"):
        read_secrets(NodeOptions(become_password_file=here / "missing"))
    (here / "program").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(UsageError, match="the program ended with exit code 3"):
        read_secrets(NodeOptions(become_password_file=here / "program"))
    (here / "text").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not a text file"):
        read_secrets(NodeOptions(become_password_file=here / "text"))
    with pytest.raises(UsageError, match="--ask-become-pass"):
        read_secrets(NodeOptions(ask_become_pass=True, become_password_file=here / "text"))


@pytest.mark.parametrize(("answer", "went"), [("y\n", True), ("n\n", False)])
def test_rollback_asks_at_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, went: bool
) -> None:
    back = RunResult(
        plan_digest="",
        nodes=(NodeResult(node="a", state="rolled_back", reason="from release r2 to r1"),),
        changed=True,
    )
    calls: list[str] = []

    def rollback(_: object, **__: object) -> RunResult:
        calls.append("rollback")
        return back

    serving = NodeStatus(node="a", state="ok", release_id="r2", previous="r1")
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: {"a": serving})
    monkeypatch.setattr("fleetbuild.fleet.Fleet.rollback", rollback)
    monkeypatch.setattr("fleetbuild.cli.steps.at_terminal", lambda: True)
    result = run("rollback", FLEET, stdin=answer)
    assert result.exit_code == 0, result.output
    assert "\na: from release r2 to r1\n" in f"\n{result.stdout}"
    assert bool(calls) is went
    assert ("rolled back: a: from release r2 to r1" in result.stdout) is went
    assert ("Nothing was changed." in result.stdout) is not went


def test_a_rollback_with_nothing_to_switch_asks_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = NodeStatus(node="a", state="ok", release_id="r2")
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: {"a": serving})
    result = run("rollback", FLEET)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-2:] == [
        "a: stays at release r2: no earlier verified release is there",
        "Nothing to do.",
    ]
    lost = serving.model_copy(update={"release_id": None, "drift": "missing"})
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: {"a": lost})
    assert run("rollback", FLEET).exit_code == 2  # it would ask, and no terminal is there


def test_rollback_in_a_script_needs_yes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: {})
    back = NodeResult(node="a", state="rolled_back"), NodeResult(node="b", state="unreachable")
    monkeypatch.setattr(
        "fleetbuild.fleet.Fleet.rollback", lambda *_, **__: RunResult(plan_digest="", nodes=back)
    )
    done = run("rollback", FLEET, "--yes")  # a second time for all, a would go back one more
    assert done.stdout.endswith(f"the rest alone: fleetbuild rollback {FLEET} --limit b\n")
    refused = run("rollback", FLEET, "-l", "avx2*", "--json")
    assert refused.exit_code == 2
    assert f"Run: fleetbuild rollback {FLEET} --yes --limit 'avx2*'" in refused.stderr


@pytest.mark.parametrize(
    ("answer", "words", "went"),
    [("y\n", (), True), ("n\n", (), False), ("", ("--yes",), True)],
)
def test_remove_asks_and_then_removes(
    run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, words: tuple[str, ...], went: bool
) -> None:
    calls: list[bool] = []

    def remove(_: object, **__: object) -> RunResult:
        calls.append(True)
        node = NodeResult(node="a", state="removed", reason="2 releases removed from /x.")
        return RunResult(plan_digest="", nodes=(node,), changed=True)

    monkeypatch.setattr("fleetbuild.fleet.Fleet.remove", remove)
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: {})
    monkeypatch.setattr("fleetbuild.cli.steps.at_terminal", lambda: True)
    result = run("remove", FLEET, *words, stdin=answer)
    assert result.exit_code == 0, result.output
    assert calls == ([True] if went else [])
    assert ("Nothing was changed." in result.stdout) is not went
    assert ("1 node cleared" in result.stdout) is went


def test_a_refused_remove_shows_what_serves_where(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = {
        "n1": NodeStatus(node="n1", state="ok", release_id="r2", previous="r1"),
        "n2": NodeStatus(node="n2", state="ok", release_id="r2", previous="r1"),
        "n3": NodeStatus(node="n3", state="ok", release_id="r2"),
        "n4": NodeStatus(node="n4", state="unreachable"),
        "n5": NodeStatus(node="n5", state="ok"),
    }
    monkeypatch.setattr("fleetbuild.fleet.Fleet.status", lambda *_, **__: serving)
    result = run("remove", "-i", FLEET)
    assert result.exit_code == 2
    assert "n[1-2]: release r2, and r1 before it" in result.stdout
    assert "n3: release r2\n" in result.stdout
    assert "n4: unreachable\n" in result.stdout
    assert "n5: no release serves; one that was kept there is removed\n" in result.stdout
    assert result.stdout.startswith("All releases called default are removed from n[1-3].\n")
    assert f"Run: fleetbuild remove {FLEET} --yes" in result.output
    serving = {"n5": serving["n5"]}
    assert run("remove", FLEET).stdout.startswith("No releases called default serve.\n")
    silent = run("remove", FLEET, "--json")
    assert silent.exit_code == 2
    assert "release r2" not in silent.output


def test_remove_without_a_terminal_needs_yes(run: Run) -> None:
    result = run("remove", FLEET, "--limit", "avx2*", "--state-dir", "my s")
    assert result.exit_code == 2
    words = "--yes --limit 'avx2*' --state-dir 'my s'"
    assert f"fleetbuild remove {FLEET} {words}" in " ".join(result.output.split())
