"""Labels, Node patches and workloads of a plan, as files. No I/O.

In: a plan, the release that each host serves, and delivery options. Out: file names and texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleetbuild.extensions.kubernetes.labels.node_labels import (
    check_domain,
    kubernetes_name,
    label_script,
    node_patches,
)
from fleetbuild.extensions.kubernetes.labels.release_labels import labels_by_node
from fleetbuild.extensions.kubernetes.manifests.images import default_image
from fleetbuild.extensions.kubernetes.manifests.kustomize import kustomization, kustomization_file
from fleetbuild.extensions.kubernetes.manifests.names import is_subdomain, label_value
from fleetbuild.extensions.kubernetes.manifests.options import Delivery, PodParts
from fleetbuild.extensions.kubernetes.manifests.pod_parts import modules, parts
from fleetbuild.extensions.kubernetes.manifests.workload import KINDS, smoke
from fleetbuild.models import Plan, PlannedGroup, ReleaseFile
from fleetbuild.models.plan import version_skew
from fleetbuild.models.serving import Serving, as_planned, hosts
from fleetbuild.text import fold

_MOST = 5  # sentences of one kind
_KUSTOMIZATION = """\
The workloads of all groups: kubectl apply -k .
Labels are not among them: labels.sh puts them on the nodes."""


def render(
    plan: Plan,
    *,
    serving: Serving | None = None,
    delivery: Delivery | None = None,
    wheels: Mapping[str, Sequence[ReleaseFile]] | None = None,
    whole: Plan | None = None,
) -> dict[str, str]:
    """Return {file name: text}: the workloads, and labels.sh.

    Without nodes.yaml: to apply the folder must create no Node. `serving` is the release of each
    host, for its labels; by default hosts that the plan found up to date serve its release.
    `delivery` is how packages get into pods; `wheels` are the files of each group's release, for an
    init container. `whole` is the plan with all nodes to label, if `plan` lacks groups.
    """
    labels = {"labels.sh": render_labels(whole or plan, serving)["labels.sh"]}
    delivery = delivery or Delivery()
    workloads = {
        f"{delivery.kind}-{label_value(group.name)}.yaml": smoke(
            plan, group, delivery.kind, needs.of(delivery.kind), image
        )
        for group, needs, image in deliveries(plan, delivery, wheels)
    }
    about = "\n".join((_KUSTOMIZATION, *version_skew(plan.groups)))
    all_of_them = kustomization_file(list(workloads), about)
    files = {**labels, "kustomization.yaml": all_of_them, **workloads}
    return dict(sorted(files.items()))


def render_kustomize(
    plan: Plan,
    *,
    delivery: Delivery,
    wheels: Mapping[str, Sequence[ReleaseFile]] | None = None,
) -> dict[str, str]:
    """Return a Kustomize component for each group, and the same workloads by means of them."""
    check_domain(plan.label_domain)
    return kustomization(plan, delivery.kind, list(deliveries(plan, delivery, wheels)))


def deliveries(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]] | None = None
) -> Iterator[tuple[PlannedGroup, PodParts, str]]:
    """Yield each group that can be delivered, with its pod parts and the image that runs."""
    for group in sorted(plan.groups, key=lambda group: group.name):
        files = (wheels or {}).get(group.name, ())
        if _obstacle(group, delivery, files):
            continue
        image = delivery.image or default_image(group.target) or ""
        needs = parts(plan, group, delivery, image=image, wheels=files)
        yield group, needs, needs.image or image


def warnings(
    plan: Plan,
    *,
    serving: Serving | None = None,
    delivery: Delivery | None = None,
    wheels: Mapping[str, Sequence[ReleaseFile]] | None = None,
) -> tuple[str, ...]:
    """Return a sentence for everything that `render` leaves out."""
    delivery = delivery or Delivery()
    return (*node_warnings(plan, serving), *_left_out(plan, delivery, wheels or {}))


def import_warnings(plan: Plan, wheels: Mapping[str, Sequence[ReleaseFile]]) -> tuple[str, ...]:
    """Return a sentence for the groups with packages that no smoke workload of theirs imports."""
    unknown: dict[tuple[str, ...], list[str]] = {}  # packages -> groups
    for group in plan.groups:
        found = modules(group, wheels.get(group.name, ()))
        names = tuple(name for name, imports in found.items() if not imports)
        if group.release_id and names:
            unknown.setdefault(names, []).append(group.name)
    return tuple(
        f"{fold(groups)}: the modules of {', '.join(names)} are unknown until the store holds the"
        " whole release, so the smoke workload does not import them; emit again after fleetbuild"
        " apply."
        for names, groups in unknown.items()
    )


def node_warnings(plan: Plan, serving: Serving | None = None) -> tuple[str, ...]:
    """Return a sentence for nodes without labels."""
    return (*_bad_names(plan), *_unknown(plan, as_planned(plan) if serving is None else serving))


def _unknown(plan: Plan, serving: Serving) -> Iterator[str]:
    """Yield a warning for nodes whose release is unknown."""
    open_ = [name for group in plan.groups for name in group.nodes if name not in serving]
    if open_:
        it, its = ("it serves", "its") if len(open_) == 1 else ("they serve", "their")
        yield (
            f"{fold(open_)}: what {it} is unknown, so {its} labels stay as they are; "
            f"ask with fleetbuild status {plan.inventory}, then emit again."
        )


def render_labels(plan: Plan, serving: Serving | None = None) -> dict[str, str]:
    """Return the two files that label nodes, by the release of each host."""
    check_domain(plan.label_domain)
    nodes = labels_by_node(plan, serving)
    return {"labels.sh": label_script(plan, nodes), "nodes.yaml": node_patches(plan, nodes)}


def _bad_names(plan: Plan) -> Iterator[str]:
    by_name: dict[str, list[str]] = {}
    for node in sorted(hosts(plan)):
        by_name.setdefault(kubernetes_name(plan, node), []).append(node)
    if bad := [name for name in by_name if not is_subdomain(name)]:
        named = fold(node for name in bad for node in by_name[name])
        yield (
            f"{named}: {bad[0]!r} cannot be the name of a Kubernetes node, so {_gets(bad)} no"
            " labels; set kubernetes_node for this host, or kubernetes.node_name in fleetbuild.yml."
        )
    for number, (name, nodes) in enumerate(_claimed_twice(by_name)):
        if number == _MOST:
            yield f"{len(_claimed_twice(by_name)) - number} more names are each claimed by several."
            return
        yield (
            f"{fold(nodes)} are all called {name!r} in the cluster, so none gets labels; "
            "set kubernetes_node for each host."
        )


def _claimed_twice(by_name: Mapping[str, list[str]]) -> list[tuple[str, list[str]]]:
    return [(name, nodes) for name, nodes in by_name.items() if len(nodes) > 1]


def _gets(several: Sequence[str]) -> str:
    return "it gets" if len(several) == 1 else f"these {len(several)} get"


def _left_out(
    plan: Plan, delivery: Delivery, wheels: Mapping[str, Sequence[ReleaseFile]]
) -> Iterator[str]:
    for group in plan.groups:
        if obstacle := _obstacle(group, delivery, wheels.get(group.name, ())):
            what, fix = obstacle
            yield f"{group.name}: {what}, so no {KINDS[delivery.kind][1]}{fix}."


def _obstacle(
    group: PlannedGroup, delivery: Delivery, wheels: Sequence[ReleaseFile]
) -> tuple[str, str] | None:
    """Return why this group cannot be delivered and the fix, or None."""
    libc = group.target.libc
    if not group.release_id:
        return "no release is planned (the lock is missing)", ""
    if delivery.way == "init" and not wheels:
        return (
            "the store does not hold its wheels",
            "; fetch them with fleetbuild store fetch, which also lists unbuilt wheels",
        )
    if delivery.way == "image" or delivery.image or default_image(group.target):
        return None
    needed = f"{group.target.python} with {libc.family} {libc.floor} or newer"
    return f"no official Python image is known for {needed}", "; name an image"
