"""Which release each node serves, from its last probe or playbook reply.

In: the facts in the state directory, updated by every probe and reply. Out: the manifest of each
node. Labels and Kubernetes manifests are made from these, not from what an apply intended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetbuild.models import Capture, Manifest, Plan, Result, Unreachable, now
from fleetbuild.models.revocation import Revocations
from fleetbuild.models.serving import as_planned
from fleetbuild.probe.captures import load_captures, save_section
from fleetbuild.probe.parsing.facts import releases_of
from fleetbuild.state import StateDir
from fleetbuild.store.wheels import Store

_SECTION = "release"
_FILES = "release-files"


def serving_now(
    plan: Plan, state: StateDir | None = None, result: Result | None = None
) -> dict[str, Manifest | None]:
    """Return what each of the plan's nodes serves.

    The node's last facts win over the result, the result over the plan. Unknown nodes are left out.
    A release with a revoked wheel does not count as verified.
    """
    serving = as_planned(plan) if result is None else _by_result(plan, result)
    if state is None:
        return serving
    open_ = {name: made for name, made in serving.items() if not state.is_changing(name)}
    served = {**open_, **last_said(state, plan.nodes, plan.release)}
    revoked = Store(state.store).revocations
    return {name: _unless_revoked(made, revoked) for name, made in served.items()}


def _unless_revoked(manifest: Manifest | None, revoked: Revocations) -> Manifest | None:
    """Return the manifest; it does not count as verified if one of its wheels is revoked."""
    if manifest and revoked.of_manifest(manifest):
        return manifest.model_copy(update={"verified": False})
    return manifest


def last_said(state: StateDir, names: Iterable[str], release: str) -> dict[str, Manifest | None]:
    """Return what these nodes last served; None if nothing. Unknown nodes are left out."""
    unchanged = [name for name in names if state.probed(name) and not state.is_changing(name)]
    captures = _captured(state, unchanged)
    return {name: _releases_of(captures[name]).get(release) for name in unchanged}


def note_reply(state: StateDir, name: str, manifest: Manifest) -> None:
    """Save that a node serves this manifest, as its reply to a playbook says."""
    capture = _captured(state, [name])[name]
    served = {**_releases_of(capture), manifest.release: manifest}
    text = "\n".join(manifest.model_dump_json() for manifest in served.values())
    save_section(state.facts, name, _SECTION, text + "\n")
    if manifest.verified and not isinstance(capture, Unreachable) and capture.get(_FILES):
        save_section(state.facts, name, _FILES, "")  # damage that a probe found is repaired
    state.mark_probed(name, now())


def _captured(state: StateDir, names: Sequence[str]) -> dict[str, Capture | Unreachable]:
    if not state.facts.is_dir():
        return {name: {} for name in names}
    return load_captures(state.facts, names, [_SECTION, _FILES])


def _releases_of(capture: Capture | Unreachable) -> Mapping[str, Manifest]:
    return {} if isinstance(capture, Unreachable) else releases_of(capture)


def _by_result(plan: Plan, result: Result) -> dict[str, Manifest | None]:
    """Return what nodes serve according to a result, which may be of an older plan."""
    planned = {name: group.release_id for name, group in plan.groups_by_node.items()}
    left = {node.node: node.release_id for node in result.nodes if node.node in result.verified}
    works = {name for name, release in left.items() if release == planned.get(name, "")}
    serving = as_planned(plan, works)
    return {name: made for name, made in serving.items() if made or name not in left}
