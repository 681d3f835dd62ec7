"""A follower for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fleetbuild.extension import Follower
from fleetbuild.models.problem import Problem
from fleetbuild.models.result import LabelResult
from fleetbuild.models.serving import InUse, Serving


class Told(Follower):
    """A follower that lists its requests, in order, among other events."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.mounted: dict[str, dict[str, str] | Problem] = {}
        self.roots: list[str] = []
        self.trouble: dict[str, str] = {}  # (moment, node) -> state, as "off avx-1"

    def prepare(self, *, installs: bool = False) -> str:  # noqa: ARG002 see Follower
        self.log.append("prepare")
        return ""

    def before(self, names: Iterable[str], *, serves: bool = False) -> dict[str, LabelResult]:
        return self._all("off" if serves else "empty", dict.fromkeys(names, ""))

    def after(self, served: Serving) -> dict[str, LabelResult]:
        on = self._all("on", {name: f"={made.id}" for name, made in served.items() if made})
        return on | self.before([name for name, made in served.items() if not made])

    def in_use(self, names: Iterable[str], root: str) -> InUse:
        self.roots.append(root)
        return {name: self.mounted[name] for name in names if name in self.mounted}

    def _all(self, moment: str, names: Mapping[str, str]) -> dict[str, LabelResult]:
        self.log += [f"{moment} {name}{what}" for name, what in names.items()]
        return {name: self._one(moment, name) for name in names}

    def _one(self, moment: str, name: str) -> LabelResult:
        state = self.trouble.get(f"{moment} {name}", "labelled")
        about: dict[str, Any] = {"state": state, "node": name, "kubernetes_node": name}
        why = {} if state == "labelled" else {"reason": "It says no.", "fix": "Ask again."}
        return LabelResult(**about, **why)
