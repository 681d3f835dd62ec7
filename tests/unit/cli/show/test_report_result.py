from fleetbuild.cli.show.result import next_command, places, result_lines
from fleetbuild.cli.show.text import troubles
from fleetbuild.models import NodeResult, PlannedNode, Result, WheelResult
from tests.factories.plans import make_plan

PLAN = make_plan(inventory="inv.yml", nodes={}, groups=())

BUILT = WheelResult(
    package="hnswlib", wheel_version="0.8.0+cpu.avx2", artifact_key="a", state="built",
    built_on="n1", seconds=31.2,
)  # fmt: skip
FAILED = WheelResult(
    package="hnswlib", wheel_version="0.8.0+cpu.avx", artifact_key="b", state="failed",
    reason="the compiler was killed.", fix="give it memory.", log=".fleetbuild/logs/b.log",
)  # fmt: skip


def test_a_wheel_built_by_an_earlier_run_is_marked() -> None:
    found = BUILT.model_copy(update={"cached": True})
    lines = result_lines(Result(plan_digest="d", wheels=(found,), changed=True, seconds=2))
    assert lines == [
        "already built: hnswlib-0.8.0+cpu.avx2 on n1",
        "Done in 2.0 s: 1 wheel already built. Nothing installed.",
    ]
    both = (BUILT, found.model_copy(update={"artifact_key": "b"}))
    nodes = (NodeResult(node="n1", state="installed"),)
    last = result_lines(Result(plan_digest="d", wheels=both, nodes=nodes, changed=True))[-1]
    assert "1 wheel built. 1 wheel already built. 1 node installed." in last


def test_names_in_a_shared_reason_are_a_list_in_order() -> None:
    nodes = {name: ("unreachable", f"no address for {name}", f"ask {name}") for name in "ba"}
    assert troubles(nodes) == ["unreachable: no address for a, b", "  fix: ask a,b"]


def test_the_words_that_several_nodes_say_alike_come_after_their_folded_names() -> None:
    names = ["n2-1", "n1", "n2", "n2-2"]
    nodes = {name: ("failed", f"{name} says: no space on {name}.", None) for name in names}
    assert troubles(nodes) == ["failed: n2-[1-2], n[1-2] say: no space on n1, n2, n2-1, n2-2."]
    many = {f"n{number}": ("failed", f"n{number} says: no space.", None) for number in range(1, 40)}
    assert troubles(many) == ["failed: n[1-39] say: no space."]
    one = {"n1": ("failed", "n1 says: no space on n1.", None)}
    assert troubles(one) == ["failed: n1 says: no space on n1."]


def test_nodes_are_listed_before_a_reason_that_does_not_list_them() -> None:
    def lines(reason: str, *names: str) -> list[str]:
        return troubles({name: ("unreachable", reason.format(name), None) for name in names})

    assert lines("no address for {}", "a") == ["unreachable: a: no address for a"]
    assert lines("no route\n{}", "a", "b") == ["unreachable: a, b: no route", "  | a, b"]
    many = [f"n{number}" for number in range(30)]
    assert lines("no address for {}", *many) == ["unreachable: n[0-29]: no address for NODE"]


def test_an_apply_without_changes_says_nothing_to_do() -> None:
    nodes = (NodeResult(node="n1", state="up_to_date"),)
    assert result_lines(Result(plan_digest="d", nodes=nodes, seconds=2)) == [
        "Done in 2.0 s: nothing to do. 1 node up to date."
    ]


def test_the_worst_is_read_last() -> None:
    nodes = (
        NodeResult(node="n1", state="installed"),
        NodeResult(node="n7", state="unreachable", reason="no route", fix="bring it back"),
        NodeResult(node="n8", state="unreachable", reason="no route", fix="bring it back"),
        NodeResult(node="n9", state="build_failed", reason="see above"),
    )
    result = Result(plan_digest="d", wheels=(FAILED,), nodes=nodes, changed=True, seconds=9.94)
    assert result_lines(result) == [
        "failed: hnswlib-0.8.0+cpu.avx: the compiler was killed.",
        "  fix: give it memory.",
        "  log: .fleetbuild/logs/b.log",
        "unreachable: n[7-8]: no route",
        "  fix: bring it back",
        "without a wheel: n9",
        "Ended in 9.9 s: 1 of 4 nodes installed, 2 unreachable, 1 without a wheel.",
    ]


def test_an_apply_without_work_says_so() -> None:
    assert result_lines(Result(plan_digest="d")) == ["Done in 0.0 s: nothing to build or install."]


def test_the_end_says_where_the_release_is_and_the_next_command() -> None:
    nodes = (NodeResult(node="n1", state="installed"), NodeResult(node="n2", state="up_to_date"))
    result = Result(plan_digest="d", wheels=(BUILT,), nodes=nodes, manifests=("m",))
    assert places(PLAN, result) == ["Serving /opt/fleetbuild/current on n[1-2]."]
    assert places(PLAN, Result(plan_digest="d")) == []
    assert next_command(PLAN, result) == "Next: fleetbuild status INVENTORY"
    gone = Result(plan_digest="d", nodes=(NodeResult(node="n1", state="unreachable"),))
    fix = "Next: fix the error above, then run"
    assert next_command(PLAN, gone) == f"{fix} fleetbuild plan INVENTORY"
    planned = PLAN.model_copy(update={"nodes": {"n1": PlannedNode(state="ok")}})
    assert next_command(planned, gone) == f"{fix} again: fleetbuild apply"
    failed = Result(plan_digest="d", nodes=(NodeResult(node="n1", state="build_failed"),))
    assert next_command(PLAN, failed) == f"{fix} again: fleetbuild apply"
    broken = failed.model_copy(update={"wheels": (FAILED,)})
    assert next_command(PLAN, broken).endswith("fleetbuild plan INVENTORY")


def test_compiler_output_is_shown_as_lines() -> None:
    broken = FAILED.model_copy(
        update={"reason": "The compiler stopped.\na.c:3: error: no\n^\x1b[2J"}
    )
    assert result_lines(Result(plan_digest="d", wheels=(broken,)))[:3] == [
        "failed: hnswlib-0.8.0+cpu.avx: The compiler stopped.",
        "  | a.c:3: error: no",
        "  | ^",
    ]


def test_what_the_build_of_a_package_says_stands_once() -> None:
    first = FAILED.model_copy(update={"reason": "It stopped on a.\na.c:3: error: no"})
    second = first.model_copy(update={"wheel_version": "0.8.0+cpu.avx2", "log": "c.log"})
    other = first.model_copy(update={"package": "idna", "log": None})
    lines = result_lines(Result(plan_digest="d", wheels=(first, second, other)))
    assert lines[:6] == [
        "failed: hnswlib-0.8.0+cpu.avx: It stopped on a.",
        "  | a.c:3: error: no",
        "  fix: give it memory.",
        "  log: .fleetbuild/logs/b.log",
        "failed: hnswlib-0.8.0+cpu.avx2: It stopped on a.",
        "  log: c.log",
    ]
    assert "  | a.c:3: error: no" in lines[6:]


def test_nodes_with_the_same_problem_share_a_line() -> None:
    nodes = tuple(
        NodeResult(
            node=name, state="verify_failed", reason=f"A check failed on {name}.",
            fix=f"fleetbuild rollback i.yml --limit {name}",
        )
        for name in ("n1", "n2", "n10")
    )  # fmt: skip
    assert result_lines(Result(plan_digest="d", nodes=nodes))[:-1] == [
        "failed to verify: A check failed on n1, n2, n10.",
        "  fix: fleetbuild rollback i.yml --limit n1,n2,n10",
    ]


def test_a_rollback_names_both_releases() -> None:
    nodes = tuple(
        NodeResult(node=name, state="rolled_back", reason="from release r2 to r1") for name in "ab"
    )
    assert result_lines(Result(plan_digest="", nodes=nodes, changed=True))[0] == (
        "rolled back: a, b: from release r2 to r1"
    )


def test_what_the_plan_above_says_of_a_node_is_not_said_again() -> None:
    said = {"reason": "no route", "fix": "look"}
    plan = make_plan(nodes={n: PlannedNode(state="unreachable", **said) for n in ("a", "b")})
    nodes = (
        NodeResult(node="a", state="unreachable", **said),
        NodeResult(node="b", state="unreachable", reason="it hangs"),
    )
    result = Result(plan_digest="", nodes=nodes)
    assert result_lines(result, shown=plan)[:-1] == [
        "Left out, as the plan above says. unreachable: a",
        "unreachable: b: it hangs",
    ]
    assert "unreachable: a: no route" in result_lines(result)
