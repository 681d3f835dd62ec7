"""Several followers of a run: all are notified, and a failure of one counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fleetbuild.apply.followers import Followers
from fleetbuild.extension import Follower
from fleetbuild.models.problem import Problem
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import InUse, Serving

SILENT = Problem("The cluster is silent.", "Ask again.")


class One(Follower):
    def __init__(self, state: Any, kept: InUse, warning: str = "") -> None:
        self.state, self.kept, self.warning = state, kept, warning
        self.told: list[list[str]] = []

    def prepare(self, *, installs: bool = False) -> str:
        return f"{self.warning} {installs}" if self.warning else ""

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        assert serves
        return self.after(dict.fromkeys(names))

    def after(self, served: Serving) -> dict[str, LabelResult]:
        self.told.append(list(served))
        return {
            name: LabelResult(node=name, kubernetes_node=name, state=self.state) for name in served
        }

    def in_use(self, names: Collection[str], root: str) -> InUse:  # noqa: ARG002
        return self.kept


def states(results: Mapping[str, LabelResult]) -> dict[str, str]:
    return {name: result.state for name, result in results.items()}


def test_all_are_notified_and_any_failure_counts() -> None:
    for order in (("labelled", "forbidden"), ("forbidden", "labelled")):
        both = [One(state, {}) for state in order]
        assert states(Followers(both).before(iter("ab"), serves=True)) == {
            "a": "forbidden", "b": "forbidden"
        }  # fmt: skip
        assert states(Followers(both).after({"a": None})) == {"a": "forbidden"}
        assert [one.told for one in both] == [[["a", "b"], ["a"]]] * 2
    said = Followers(
        [One("labelled", {}, "One:"), One("labelled", {}), One("labelled", {}, "Two:")]
    )
    assert said.prepare(installs=True) == "One: True Two: True"


def test_a_release_is_kept_for_each_that_uses_it_unless_one_does_not_know() -> None:
    pods = One("labelled", {"a": {"r1": "A pod."}, "b": SILENT, "c": {"r1": "A pod."}})
    jobs = One("labelled", {"a": {"r2": "A job."}, "b": {"r2": "A job."}, "c": SILENT})
    assert Followers([pods, jobs]).in_use("abc", "/opt/f") == {
        "a": {"r1": "A pod.", "r2": "A job."}, "b": SILENT, "c": SILENT
    }  # fmt: skip


def test_without_followers_nothing_is_done() -> None:
    nobody = Followers([])
    assert nobody.prepare() == ""
    assert nobody.before(["a"]) == nobody.after({"a": None}) == nobody.in_use(["a"], "/") == {}
