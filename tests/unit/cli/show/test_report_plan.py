from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from fleetbuild.cli.show import plan as report
from fleetbuild.models import (
    Installs,
    Plan,
    PlannedGroup,
    PlannedNode,
    PlannedWheel,
    Requires,
    Summary,
)
from fleetbuild.models.plan import VersionChange
from tests.factories.fleets import locked
from tests.factories.plans import make_group, make_plan, make_target, make_wheel

NODES = [f"gpu-{number:02d}" for number in range(1, 9)]


def wheel(action: Literal["build", "reuse"], isa: str, **more: Any) -> PlannedWheel:
    return make_wheel(
        wheel_version=f"0.8.0+cpu.{isa}",
        target=target(isa),
        action=action,
        reason="oldest libc 2.28" if action == "build" else "in the store",
        built_on=NODES[0] if action == "build" else None,
        jobs=2,
        **{"why_there": "oldest libc", **more},
    )


target = partial(make_target, floor="2.28")


def group(isa: str, nodes: list[str], one: PlannedWheel, installs: Installs) -> PlannedGroup:
    return make_group(nodes, target(isa), (one,), installs=installs)


def plan(**more: Any) -> Plan:
    groups = (
        group("avx2", NODES[:3], wheel("build", "avx2"), Installs(install=tuple(NODES[:3]))),
        group("avx512", NODES[3:], wheel("reuse", "avx512"), Installs(up_to_date=tuple(NODES[3:]))),
    )
    nodes = {
        **{name: PlannedNode(state="ok", warnings=("odd",)) for name in NODES},
        "old-1": PlannedNode(state="blocked", reason="Python 3.6", fix="install python3.11"),
        "gone-1": PlannedNode(state="unreachable", reason="no \x1b[31mroute", fix="look"),
        "gone-2": PlannedNode(state="unreachable", reason="no \x1b[31mroute", fix="look"),
    }
    fields: dict[str, Any] = {
        "fingerprint": {
            name: {"libc": "glibc 2.28" if name == "gpu-01" else "glibc 2.36"} for name in NODES
        },
        "nodes": nodes,
        "summary": Summary(
            wheels_to_build=1, wheels_reused=1, nodes_to_change=3, nodes_up_to_date=5,
            nodes_blocked=1, nodes_unreachable=2,
        ),
    }  # fmt: skip
    return make_plan(**{"groups": groups, **fields, **more})


def test_the_heading_names_nodes_times_and_packages() -> None:
    assert report.heading(plan(), 1.62) == "11 nodes probed in 1.6 s · hnswlib 0.8.0"
    assert report.heading(plan(), 1.62, 12.2) == (
        "11 nodes probed in 1.6 s, resolved and planned in 12 s · hnswlib 0.8.0"
    )
    assert report.heading(plan(facts_source="captures"), 1) == (
        "11 nodes from captures · hnswlib 0.8.0"
    )
    assert "from the cluster's labels" in report.heading(plan(facts_source="cluster"), 1)


def test_a_wheel_that_is_there_has_no_builder(rendered: Callable[..., str]) -> None:
    """The files in golden/ have the other rows."""
    _, build, reuse, *_ = rendered(report.plan_body(plan(), 200)).splitlines()
    assert build.startswith("+  cpu-avx2-cp311        3  gpu-[01-03]  gpu-01     oldest libc 2.28")
    assert reuse.startswith("=  cpu-avx512-cp311      5  gpu-[04-08]  -")
    assert "5 up to date" in reuse


@pytest.mark.parametrize("width", [60, 200])
def test_a_replaced_release_shows_its_versions_with_a_mark(
    rendered: Callable[..., str], width: int
) -> None:
    changes = (
        VersionChange(package="httpx", installed=("0.28.1",), planned="0.27.2"),
        VersionChange(package="hnswlib", installed=("0.8.0",), planned="0.8.0"),
        VersionChange(package="old", installed=("1", "2")),
        VersionChange(package="new", planned="1"),
    )
    one = group("avx2", NODES, wheel("reuse", "avx2"), Installs(upgrade=("n",)))
    made = plan(groups=(one.model_copy(update={"changes": changes}),))
    text = rendered(report.plan_body(made, width), width)
    assert "~ " in text.splitlines()[width // 200]
    for words in ("change 1", "httpx 0.28.1 → 0.27.2", "hnswlib 0.8.0 → 0.8.0, another build",
                  "old 1 or 2 → none", "new none → 1"):  # fmt: skip
        assert words in text
    many = one.model_copy(update={"changes": changes * 3})
    assert "and 4 more versions" in rendered(report.plan_body(plan(groups=(many,)), width), width)


@pytest.mark.parametrize("width", [60, 200])
def test_what_all_groups_get_as_published_stands_once(
    rendered: Callable[..., str], width: int
) -> None:
    taken = make_wheel(
        "httpx",
        "0.28.1",
        action="published",
        reason="Fits.",
        published=locked("httpx", "0.28.1"),
    )
    other = taken.model_copy(update={"package": "idna"})
    groups = [
        group(isa, [isa], wheel("build", isa), Installs(install=(isa,))).model_copy(
            update={"wheels": (wheel("build", isa), taken)}
        )
        for isa in ("avx2", "avx512")
    ]
    made = plan(groups=groups)
    assert report.shared_lines(made) == ["In all groups, as published: httpx 0.28.1"]
    assert "httpx" not in rendered(report.plan_body(made, width), width)
    alone = plan(groups=groups[:1])
    assert report.shared_lines(alone) == ["As published: httpx 0.28.1"]
    more = [each.model_copy(update={"wheels": (*each.wheels, other)}) for each in groups]
    assert report.shared_lines(plan(groups=more)) == [
        "In all groups, as published: all but hnswlib"
    ]
    assert "httpx" not in rendered(report.plan_body(alone, width), width)


def test_a_blocked_group_says_its_reason_once(rendered: Callable[..., str]) -> None:
    stuck = make_wheel("a", "1", action="blocked", reason="a 1 has no wheel.")
    one = group("avx2", ["n"], stuck, Installs())
    both = one.model_copy(update={"wheels": (stuck, stuck.model_copy(update={"package": "b"}))})
    assert rendered(report.plan_body(plan(groups=(both,)), 60), 60).count("a 1 has no wheel.") == 1


def test_skipped_nodes_are_listed() -> None:
    left = PlannedNode(state="skipped", reason="The inventory says fleetbuild_skip.")
    lines = report.plan_ending(plan(nodes={"n1": left, "n2": left}))
    assert lines[0] == "skipped: n[1-2]: The inventory says fleetbuild_skip."
    assert lines[-1].endswith("2 unreachable, 2 skipped.")


def test_a_table_that_does_not_fit_becomes_lines_with_every_word(
    rendered: Callable[..., str],
) -> None:
    said = "/opt/fleetbuild is on a file system that is mounted read-only there."
    frozen = PlannedNode(state="blocked", reason=said, fix="mount it for writing " * 3)
    made = plan(nodes={"frozen": frozen})
    wide = rendered(report.plan_body(made, 200), 200)
    assert "builds on" in wide
    natural = max(len(line.rstrip()) for line in wide.splitlines())
    assert rendered(report.plan_body(made, natural), natural) == rendered(
        report.plan_body(made, 200), natural
    )
    text = rendered(report.plan_body(made, natural - 1), natural - 1)
    assert "builds on" not in text
    assert said in " ".join(text.split())


@pytest.mark.parametrize(
    ("evidence", "said"),
    [("released", "CUDA 12.6: released"), ("reported", "CUDA 12.6: reported to work"),
     ("buildable", "CUDA 12.6: buildable, not reported"), (None, None)],
)  # fmt: skip
def test_the_evidence_of_a_wheel_is_shown_below_it(
    rendered: Callable[..., str], evidence: str | None, said: str | None
) -> None:
    one = wheel("build", "avx2").model_copy(update={"evidence": evidence, "cuda": "12.6"})
    made = plan(groups=(group("avx2", NODES, one, Installs(install=tuple(NODES))),))
    for width in (200, 60):
        text = " ".join(rendered(report.plan_body(made, width), width).split())
        assert (said or "CUDA") in text if said else "CUDA" not in text


def test_a_blocked_group_shows_no_estimate(rendered: Callable[..., str]) -> None:
    def shown(*wheels: PlannedWheel) -> str:
        one = group("avx2", NODES, wheels[0], Installs(install=tuple(NODES)))
        groups = (one.model_copy(update={"wheels": wheels}),)
        return " ".join(rendered(report.plan_body(plan(groups=groups), 200), 200).split())

    timed = wheel("build", "avx2").model_copy(update={"minutes": 50.0, "measured": True})
    guessed = timed.model_copy(update={"measured": False})
    assert "50 min" in shown(timed)
    assert "min" not in shown(guessed)
    assert "min" not in shown(timed, guessed)


def test_a_build_of_hours_says_what_it_takes(rendered: Callable[..., str]) -> None:
    slow = wheel("build", "avx2").model_copy(update={"minutes": 480.0, "jobs": 2})
    made = plan(groups=(group("avx2", NODES, slow, Installs(install=tuple(NODES))),))
    for width in (200, 60):
        text = " ".join(rendered(report.plan_body(made, width), width).split())
        assert "about 8 h with 2 jobs (the recipe's estimate), 1 GB on the builder" in text


def test_two_hundred_nodes_stay_readable(rendered: Callable[..., str]) -> None:
    many = [f"n{number:03d}" for number in range(200)]
    big = plan(groups=(group("avx2", many, wheel("build", "avx2"), Installs(install=tuple(many))),))
    text = rendered(report.plan_body(big, 120), 120)
    assert "n[000-199]" in text
    assert len(text.splitlines()) < 10


def test_the_end_names_missing_nodes_and_the_counts() -> None:
    assert report.plan_ending(plan()) == [
        "unreachable: gone-[1-2]: no route",
        "  fix: look",
        (
            "Plan: 1 wheel to build, 1 reused. "
            "3 of 11 nodes to change, 5 up to date, 1 blocked, 2 unreachable."
        ),
    ]
    told = report.plan_ending(plan(), verbose=True)
    assert "warning: gpu-01: odd" in told
    assert (
        sum(line.startswith("Rollout: 1 canary in each group, then 25% of") for line in told) == 1
    )
    assert any(line.startswith("  cpu-avx2-cp311 (3 nodes): one by one, in 3") for line in told)


def test_the_rollout_shows_its_batches_its_limits_and_its_hooks() -> None:
    many = [f"n{number:02d}" for number in range(40)]
    big = group("avx2", many, wheel("build", "avx2"), Installs(install=tuple(many)))
    rollout = {
        "canary": 0,
        "serial": [1, 5, "30%"],
        "max_unreachable": 3,
        "before": {"playbook": "/etc/drain.yml", "timeout": 60},
        "after": {"playbook": "/etc/undrain.yml"},
    }
    took = {"cpu-avx2-cp311": 25.0, "gone": 900.0}
    made = plan(groups=(big,), rollout=rollout)
    assert report.plan_ending(made, took, verbose=True)[-6:-1] == [
        (
            "Rollout: 1 node, then 5 nodes, then 30% of its nodes at a time. A group stops after"
            " more than 10% of its nodes failed, or after more than 3 nodes stopped answering."
        ),
        (
            "  cpu-avx2-cp311 (40 nodes): 1, then 5, then 12 at a time, in 5 steps; 5 failed nodes"
            " or 4 unreachable nodes stop the rest of the group, and no other group."
        ),
        (
            "The rollout takes about 2 min 05: 5 steps of 25 s each in cpu-avx2-cp311, as in the"
            " last apply."
        ),
        "Before each switch: playbook /etc/drain.yml (at most 60 s)",
        "After each switch: playbook /etc/undrain.yml (at most 300 s)",
    ]
    alone = (group("avx2", ["n"], wheel("build", "avx2"), Installs(install=("n",))),)
    assert report.rollout_lines(plan(groups=alone)) == []
    told = report.plan_ending(plan(groups=alone), {"cpu-avx2-cp311": 3.21})
    assert told[-2] == "The rollout takes about 3.2 s, as in the last apply."
    numbers = {"serial": 2, "max_fail": 0, "max_unreachable": 1}
    exact = report.rollout_lines(plan(groups=(big,), rollout=numbers))
    assert len(exact) == 1  # numbers need no further line
    few = group("avx2", many, wheel("reuse", "avx2"), Installs(install=("n39",)))
    assert any("in 1 step;" in line for line in report.rollout_lines(plan(groups=(few,))))


def test_ten_groups_take_as_long_as_the_slowest() -> None:
    """They take their steps together."""
    groups = [
        group("avx2", [f"{name}-{number}" for number in range(4)], wheel("reuse", "avx2"),
              Installs(install=tuple(f"{name}-{number}" for number in range(4))))
        .model_copy(update={"name": name})
        for name in "abcdefghij"
    ]  # fmt: skip
    took = {"a": 8.0, "b": 12.0}  # of the others it is not known
    lines = " ".join(report.plan_ending(plan(groups=groups), took))
    assert "about 48 s: 4 steps of 12 s each in b, as" in lines


def test_reasons_for_apply_to_refuse_are_shown() -> None:
    short = Requires(compiler="gcc", to_supply=("CUDA 12.4 on gpu-01: see NVIDIA's pages",))
    groups = (group("avx2", NODES, wheel("build", "avx2", requires=short), Installs()),)
    lines = report.plan_ending(plan(lock="missing", lock_problem="no index", groups=groups))
    assert "to be supplied for cpu-avx2-cp311: CUDA 12.4 on gpu-01: see NVIDIA's pages" in lines
    assert any("its dependencies are not locked" in line for line in lines)


_NEEDS = Requires(compiler="gcc", to_supply=("CUDA 12.4",))
SHORT = {"groups": (group("avx2", NODES, wheel("build", "avx2", requires=_NEEDS), Installs()),)}


@pytest.mark.parametrize(
    ("more", "saved", "said"),
    [
        (
            {},
            ".fleetbuild/plan.json",
            "Next: fleetbuild apply\nMore: fleetbuild explain old-1",
        ),
        ({}, "my p.json", "Next: fleetbuild apply 'my p.json'"),
        (SHORT, "p.json", "Next: supply the missing tools, then fleetbuild apply p.json"),
        ({"summary": Summary()}, "p.json", "Nothing to do."),
        ({"summary": Summary(nodes_blocked=1)}, "p.json", "Nothing to do: every node is blocked."),
        (
            {"summary": Summary(nodes_unreachable=1)},
            "p.json",
            "Nothing to do: no node can be planned for.",
        ),
        (
            {"lock": "missing"},
            "p.json",
            "Next: make the index or source reachable, then plan again.",
        ),
    ],
)
def test_the_last_line_names_the_next_command(more: dict[str, Any], saved: str, said: str) -> None:
    lines = report.next_lines(plan(**more), Path(saved), Path(".fleetbuild"))
    assert "\n".join(lines) == f"Saved {saved}. {said}"


@pytest.mark.parametrize("width", [60, 200])
def test_a_plan_without_groups_shows_no_empty_table(
    rendered: Callable[..., str], width: int
) -> None:
    made = plan(groups=(), nodes={}, summary=Summary(nodes_unreachable=2))
    assert rendered(report.plan_body(made, width), width).strip() == ("No node can be planned for.")


def test_a_blocked_group_is_shown_once_with_its_fix(rendered: Callable[..., str]) -> None:
    short = Requires(compiler="gcc", to_supply=("CUDA 12.4",))
    one = wheel("build", "avx2", requires=short).model_copy(
        update={"action": "blocked", "reason": "numpy is for Python 3.11."}
    )
    node = PlannedNode(
        state="blocked", group="cpu-avx2-cp311", reason=one.reason, fix="Take an older numpy."
    )
    made = plan(
        groups=(group("avx2", NODES[:2], one, Installs()),), nodes=dict.fromkeys(NODES[:2], node)
    )
    for width in (200, 60):
        text = " ".join(rendered(report.plan_body(made, width), width).split())
        assert text.count("cpu-avx2-cp311") == text.count("numpy is for Python 3.11.") == 1
        assert text.count("Take an older numpy.") == 1
    assert not any(line.startswith("to be supplied") for line in report.plan_ending(made))


@pytest.mark.parametrize(
    ("nodes", "builder", "why", "said"),
    [
        (["gpu-02"], "gpu-02", "", "the only node"),
        (["gpu-02", "gpu-03"], "gpu-02", "reached directly", "reached directly"),
        (["gpu-01", "gpu-03"], "gpu-01", "oldest libc", "oldest libc 2.28"),
        (["gpu-02", "gpu-03"], "strong-1", "most memory", "named in build.builders"),
    ],
)
def test_the_table_says_why_a_node_builds(
    nodes: list[str], builder: str, why: str, said: str, rendered: Callable[..., str]
) -> None:
    one = wheel("build", "avx2", why_there=why).model_copy(update={"built_on": builder})
    made = plan(groups=(group("avx2", nodes, one, Installs()),))
    assert said in rendered(report.plan_body(made, 200))


def test_a_wheel_that_two_groups_share_is_not_said_to_be_built_by_a_named_builder(
    rendered: Callable[..., str],
) -> None:
    one = wheel("build", "avx2").model_copy(update={"built_on": "a", "artifact_key": "k"})
    groups = [group("avx2", ["a"], one, Installs()), group("avx512", ["b"], one, Installs())]
    shown = rendered(report.plan_body(plan(groups=tuple(groups)), 200))
    assert f"the same wheel as for {groups[0].name}" in shown
    assert "build.builders" not in shown


def test_a_plan_as_markdown_is_its_count_with_the_rest_folded():
    hostile = PlannedNode(state="blocked", reason="</details> `x` | y\nz @all #7", fix="look")
    made = plan(nodes={"a": hostile})
    lines = report.markdown_lines(made)
    assert lines[0] == f"**{report.summary_line(made)}**"
    assert (lines[2], lines[-1]) == ("<details>", "</details>")
    assert lines[4] == ""  # without it, GitHub shows the table as text
    (head,) = (at for at, line in enumerate(lines) if "| group |" in line)
    rows = [line for line in lines[head:] if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in rows}) == 1
    assert r"&lt;/details> \`x\` \| y z @<!-- -->all #<!-- -->7" in rows[-1].replace("<br>", " ")
