"""What holds at every moment: the guarantees of docs/reliability.md, looked at from outside.

`NodeRules` looks at a node whenever a module there changed something or took time, `RunRules` at
each playbook that a run starts and at the result of the run.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from fleetbuild.ansible import HostRun
from fleetbuild.models import Plan, Result
from tests.simulation.controllers import Controller
from tests.simulation.nodes import Module, SimulatedNode

_KEEPS = ("install_failed", "verify_failed", "build_failed", "not_reached", "blocked")


class NodeRules:
    """A node serves whole, verified releases, and only the run with its lease switches."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self.controllers_at_once = 1
        self._looked: dict[str, int] = {}  # the changes on a node at the last look
        self._searched: dict[str, int] = {}  # the same, of the search for half releases
        # When the manifest of a node's release was written that was looked at.
        self._whole: dict[tuple[str, str], int] = {}
        # The manifest that was read, of nodes and releases: a file is never written in place.
        self._complete: dict[tuple[str, str], tuple[int, ...]] = {}
        self._serving: dict[str, str] = {}
        self._history: dict[str, list[str]] = {}  # the releases that served on a node, in order
        self._compared: dict[str, list[Any]] = {}  # as it was compared last
        self._served: defaultdict[str, set[str]] = defaultdict(set)  # ever
        self._hurt: set[tuple[str, str]] = set()  # nodes with releases that somebody damaged
        self.switches: list[tuple[Any, str, str]] = []  # run, node, release

    def look(self, node: SimulatedNode, module: Module | None) -> None:
        """Look at what a node serves."""
        if node.liar or self._looked.get(node.name) == node.changes:
            return
        self._looked[node.name] = node.changes
        name, link = node.name, node.root.serving()
        now, before = link.removeprefix(".broken-"), self._serving.get(node.name, "")
        if now != before:
            self._switched(node, module, before, now)
        elif now:
            assert node.root.serves(link), f"{name} serves {now}, which is gone"
            assert self._is_complete(node, link), f"{name} serves {now}, which is not complete"

    def _is_complete(self, node: SimulatedNode, name: str) -> bool:
        """Return whether a release is complete; a manifest that is the same file is read once."""
        try:
            about = os.stat(f"{node.root[name]}/manifest.json")  # noqa: PTH116
        except OSError:
            return False
        place, seen = (node.name, name), (about.st_ino, about.st_mtime_ns, about.st_size)
        if self._complete.get(place) != seen:
            if node.root.manifest(name) is None:  # a damaged one has it, too
                return False
            self._complete[place] = seen
        return os.path.exists(f"{node.root[name]}/bin/python")  # noqa: PTH110

    def _switched(self, node: SimulatedNode, module: Module | None, before: str, now: str) -> None:
        name = node.name
        node.world.tell(f"{name} serves {now or 'nothing'} in place of {before or 'nothing'}")
        assert module is not None, f"{name} switched by itself"
        self._serving[name] = now
        self._remember(node, module, now)
        self.switches.append((module.run, name, now))
        assert node.holder is module.run, f"{name} was switched by a run without its lease"
        assert now or node.withdrawn, f"{name} serves nothing, although nobody asked for that"
        if now:
            found = node.root.manifest(now)
            assert found is not None, f"{name} switched to {now}, which is not complete"
            assert found["verified"], f"{name} switched to {now}, which is not verified"
            assert now in node.passed, f"{name} switched to {now}, whose checks did not pass there"
        if before and now and (name, before) not in self._hurt:
            assert node.root.manifest(before), f"{name} has lost {before}, which served before"
        if self.controllers_at_once > 1:
            return  # a run that was refused labels a node again by what it serves
        label = self._labels.get(name)
        assert label is None or label == now, f"{name} switched while a label says {label}"

    def _remember(self, node: SimulatedNode, module: Module, now: str) -> None:
        """Note a switch as a rollback has to know it."""
        served = _there(node, self._history.get(node.name, []))
        if now and module.state == "previous":
            served = served[: served.index(now) + 1]
        elif now:
            served = [*(each for each in served if each != now), now]
        self._history[node.name] = served
        self._served[node.name].update(served)

    def hurt(self, node: SimulatedNode) -> None:
        """Note that somebody damages what a node serves."""
        self._hurt.add((node.name, node.root.serving().removeprefix(".broken-")))

    def healed(self, node: SimulatedNode) -> None:
        """Look at a node again that lied."""
        self._serving[node.name] = node.root.serving().removeprefix(".broken-")
        self._history[node.name] = node.root.history()
        self._served[node.name].update(node.root.history())

    def whole(self, node: SimulatedNode) -> None:
        """Check that each release whose manifest was written since is whole, and the history."""
        if self._searched.get(node.name) == node.changes:
            return
        self._searched[node.name] = node.changes
        if not node.liar and self._moved(node):
            served, known = _there(node, self._history.get(node.name, [])), node.root.history()
            more = len(known) - len(served)  # that served, were removed and then made again
            right = known[more:] == served and self._served[node.name].issuperset(known[:more])
            assert right, f"{node.name}: {served} served, and the history has {known}"
        releases = node.root.releases
        try:
            names = os.listdir(releases)  # noqa: PTH208
        except FileNotFoundError:
            return
        for name in names:
            try:
                written = os.stat(f"{releases}/{name}/manifest.json").st_mtime_ns  # noqa: PTH116
            except OSError:  # not complete, or a link
                continue
            place = node.name, name
            if name[0] != "." and place not in self._hurt and self._whole.get(place) != written:
                self._whole[place] = written
                damage = node.root.damage(name, True, node.root.manifest(name) or {})
                assert not damage, f"{node.name}: {name} is half installed: {damage}"

    def _moved(self, node: SimulatedNode) -> bool:
        """Return whether the history of a node, or what it is compared with, may have changed."""
        found = [str(self._history.get(node.name)), node.root.serving()]
        for path in (f"{node.root.path}/history", node.root.releases):
            with contextlib.suppress(FileNotFoundError):
                about = os.stat(path)  # noqa: PTH116
                found += [about.st_ino, about.st_mtime_ns, about.st_size]
        moved, self._compared[node.name] = self._compared.get(node.name) != found, found
        return moved

    def by(self, run: object, node: str) -> list[str]:
        """Return what a run switched a node to."""
        return [to for who, name, to in self.switches if who is run and name == node]


def _there(node: SimulatedNode, releases: Iterable[str]) -> list[str]:
    return [name for name in releases if os.path.isdir(node.root[name])]  # noqa: PTH112


class RunRules:
    """A run keeps the limits of the rollout, and does no step twice."""

    def __init__(self, controller: Controller, nodes: NodeRules) -> None:
        self.controller, self._nodes = controller, nodes
        self.plan: Plan | None = None
        self._before = {
            name: node.root.serving().removeprefix(".broken-")
            for name, node in controller.nodes.items()
        }
        self._first = len(nodes.switches)
        self._waves: defaultdict[str, list[list[str]]] = defaultdict(list)
        self._ended: dict[str, str] = {}  # node -> how its install ended
        self._under_way: set[str] = set()
        self._builds: set[tuple[str, str]] = set()

    def begins(self, playbook: str, jobs: Mapping[str, Any]) -> None:
        """Check that a playbook may start on these nodes now."""
        plan = self.plan
        if playbook == "build.yml":
            for node, builds in jobs.items():
                for build in builds:
                    pair = node, build["key"]
                    assert pair not in self._builds, f"{node} builds {pair[1]} twice in one run"
                    assert build["key"] not in self.controller.store.shelf, "it is in the store"
                    self._builds.add(pair)
        elif playbook == "install.yml" and plan is not None:
            waves = defaultdict[str, list[str]](list)  # a playbook has one wave of each group
            for node in jobs:
                waves[plan.groups_by_node[node].name].append(node)
            for group, names in waves.items():
                if all(jobs[name].get("verify", True) for name in names):
                    self._wave_begins(group, names, jobs[names[0]]["release_id"])
                else:
                    assert not set(names) - self._ended.keys(), f"{names} were not verified"

    def _wave_begins(self, group: str, names: list[str], release_id: str) -> None:
        assert self.plan
        limits = self.plan.rollout
        members = next(each.nodes for each in self.plan.groups if each.name == group)
        waves = self._waves[group]
        said = f"{group}: {names} after {waves}"
        assert not self._under_way & set(members), f"{said}: the wave before has not ended"
        assert not set(names) & self._ended.keys(), f"{said}: installed twice in one run"
        seen = self.controller.seen
        again = [name for name in names if seen[name].serves("default", release_id)]
        assert not again, f"{said}: {again} serve it already"
        ended = [self._ended[name] for name in members if name in self._ended]
        assert ended.count("failed") <= limits.failures(len(members)), f"{said}: {self._ended}"
        assert ended.count("unreachable") <= limits.losses(len(members)), f"{said}: {self._ended}"
        serves = [
            name for name in members
            if self._before[name] == release_id and name not in names
        ]  # fmt: skip
        if limits.canary and len(members) > 1 and not serves and "good" not in ended:
            assert "failed" not in ended, f"{said}: a canary failed"
            assert len(waves) < 2, f"{said}: all canaries stopped answering"
            assert len(names) <= limits.canary or self._alone(members), f"{said}: no canary yet"
        most = max(islice(limits.batches(len(members)), len(waves) + 1))
        assert len(names) <= max(most, limits.canary), f"{said}: more than {most} at a time"
        waves.append(names)
        self._under_way |= set(names)

    def _alone(self, members: Iterable[str]) -> bool:
        """Return whether one node at most can be a canary."""
        return sum(name in self.controller.answered for name in members) <= 1

    def failed(self, node: str) -> None:
        """Note that a hook failed for a node."""
        self._ended[node] = "failed"

    def ended(self, playbook: str, done: Mapping[str, HostRun]) -> None:
        """Note how a playbook ended on these nodes."""
        if playbook == "install.yml":
            states = {"ok": "good", "failed": "failed", "unreachable": "unreachable"}
            self._ended |= {name: states[host.state] for name, host in done.items()}
            self._under_way -= done.keys()

    def result(self, result: Result) -> None:
        """Check that what a run says of its nodes is true."""
        for each in result.nodes:
            node = self.controller.nodes[each.node]
            switched = self._nodes.by(self, each.node)
            if node.liar or (each.reason or "").startswith("The rollback failed"):
                continue
            said = f"{each.node} is {each.state} ({each.reason}); the run switched it to {switched}"
            if each.state in _KEEPS:
                assert not switched, said
            elif each.state == "installed":
                served = {name_to[1:] for name_to in self._nodes.switches[self._first :]}
                served.add((each.node, self._before[each.node]))
                assert (each.node, each.release_id) in served, said
            elif each.state == "rolled_back":
                assert switched[-1] == (each.release_id or ""), said
