"""`fleetbuild emit k8s`, `labels` and the other kinds with options of their own; `store add`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleetbuild import UsageError
from fleetbuild.cli.commands.emit import Out, emit, folder_of, tell
from fleetbuild.cli.options import ClusterOptions, OptionGroup, OutputOptions
from fleetbuild.cli.session import Session

if TYPE_CHECKING:
    from fleetbuild import Fleet
    from fleetbuild.extensions.kubernetes.manifests.options import Delivery


class Way(StrEnum):
    """How a pod gets a release."""

    HOSTPATH = "hostpath"
    IMAGE = "image"
    VOLUME = "volume"
    INIT = "init"


class WorkloadKind(StrEnum):
    """The kinds of workload."""

    DEPLOYMENT = "deployment"
    JOB = "job"
    DAEMONSET = "daemonset"


WayOfDelivery = Annotated[
    Way | None,
    typer.Option(
        "--way",
        help="How a pod gets the release: from its node (hostpath, the default), an image of the "
        "group's own, an image volume, or an init container.",
    ),
]
KindOfWorkload = Annotated[
    WorkloadKind | None, typer.Option("--kind", help="What runs the pods; default: deployment.")
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="IMAGE",
        help="The image of the pods; default: the official Python image.",
    ),
]
ImagePrefix = Annotated[
    str | None,
    typer.Option(
        "--image-prefix",
        metavar="REPOSITORY",
        help="The repository of the groups' images, such as registry.example.com/team/fleet.",
    ),
]
IndexUrl = Annotated[
    str | None,
    typer.Option(
        "--index-url", metavar="URL", help="The URL of the folder that store export wrote."
    ),
]
RuntimeClass = Annotated[
    str | None,
    typer.Option(
        "--runtime-class",
        metavar="NAME",
        help="The RuntimeClass of pods with GPUs, if NVIDIA's is not the cluster's default.",
    ),
]
NodeClass = Annotated[
    str | None,
    typer.Option(
        "--node-class",
        metavar="GROUP/KIND/NAME",
        help="The node class of Karpenter's pools, such as karpenter.k8s.aws/EC2NodeClass/default.",
    ),
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", metavar="NAME", help="The namespace of fleetbuild's ServiceAccount."
    ),
]
Apply = Annotated[
    bool,
    typer.Option("--apply", help="Also label the cluster's Nodes, by server-side apply."),
]
Remove = Annotated[
    bool,
    typer.Option(
        "--remove",
        help="Remove the release's labels from the cluster's Nodes, and write no files. Do this "
        "before you change kubernetes.labels.",
    ),
]
ForceConflicts = Annotated[
    bool,
    typer.Option(
        "--force-conflicts",
        help="With --apply or --remove: also change fleetbuild's labels that another field manager "
        "has set.",
    ),
]

Events = Annotated[
    bool,
    typer.Option(
        "--events",
        help="With --apply: record on each Node what changed since the last time: joined, left, "
        "labels that somebody changed, another class.",
    ),
]
Metrics = Annotated[
    Path | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="With --apply: write the Nodes by class and the changes to a file for Prometheus.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions(OptionGroup):
    """How a release gets into a pod."""

    way: WayOfDelivery = None
    kind: KindOfWorkload = None
    image: Image = None
    image_prefix: ImagePrefix = None
    index_url: IndexUrl = None
    runtime_class: RuntimeClass = None

    def delivery(self, command: str) -> Delivery:
        """Return the delivery that the options describe; refuse one without effect."""
        from fleetbuild.extensions.kubernetes.manifests.options import Delivery

        way = self.way or Way.HOSTPATH
        for option, (value, ways) in {
            "--image": (self.image, _WAYS_WITH_PYTHON_IMAGE),
            "--image-prefix": (self.image_prefix, (Way.IMAGE, Way.VOLUME)),
            "--index-url": (self.index_url, (Way.INIT,)),
        }.items():
            if value is not None and way not in ways:
                raise UsageError(
                    f"{option} does not go with emit {command} --way {way}.",
                    f"Leave it out. It goes with: {', '.join(f'--way {way}' for way in ways)}.",
                )
        return Delivery(
            way=way.value,
            kind=(self.kind or WorkloadKind.DEPLOYMENT).value,
            image=self.image,
            image_prefix=self.image_prefix,
            index_url=self.index_url,
            runtime_class=self.runtime_class,
        )


_WAYS_WITH_PYTHON_IMAGE = tuple(way for way in Way if way is not Way.IMAGE)


@dataclass(frozen=True, kw_only=True)
class LabelOptions(ClusterOptions):
    """Whether the Nodes of a cluster are labelled too, and of which."""

    apply: Apply = False
    force_conflicts: ForceConflicts = False

    def refuse_without(self, needed: str) -> None:
        """Refuse options about labelling if the command labels nothing."""
        for option, value in {
            "--force-conflicts": self.force_conflicts,
            "--kubeconfig": self.kubeconfig,
            "--context": self.context,
        }.items():
            if value:
                raise UsageError(
                    f"{option} needs {needed}.", f"Add {needed}, or leave out {option}."
                )


def emit_k8s(
    *,
    pods: DeliveryOptions,
    labels: LabelOptions,
    out: Out = None,
    output: OutputOptions,
) -> None:
    """Write labels, and a smoke workload per group."""
    with output.session() as run:
        if not labels.apply:
            labels.refuse_without("--apply")
        _emit_with_labels(run, "k8s", out, labels, {}, delivery=pods.delivery("k8s"))


def emit_kustomize(*, pods: DeliveryOptions, out: Out = None, output: OutputOptions) -> None:
    """Write a Kustomize component per group for your workloads.

    A base and overlays with smoke workloads use them.
    """
    with output.session() as run:
        emit(run, "kustomize", out, delivery=pods.delivery("kustomize"))


def emit_labels(
    *,
    remove: Remove = False,
    labels: LabelOptions,
    events: Events = False,
    metrics: Metrics = None,
    out: Out = None,
    output: OutputOptions,
) -> None:
    """Write node labels, or set or remove them in a cluster."""
    changes = {"events": events, "metrics": metrics}
    with output.session() as run:
        if not (labels.apply or remove):
            labels.refuse_without("--apply or --remove")
        for option, value in changes.items():
            if value and not labels.apply:
                raise UsageError(
                    f"--{option} needs --apply.", f"Add --apply, or leave out --{option}."
                )
        if not remove:
            _emit_with_labels(run, "labels", out, labels, changes)
            return
        for option, value in {"--apply": labels.apply, "--out": out}.items():
            if value:
                raise UsageError(f"{option} does not go with --remove.", f"Leave out {option}.")
        document = _label(run, _fleet(run, labels), labels, remove=True)
        if output.json:
            run.out.document(document)


def emit_affinity(
    *, runtime_class: RuntimeClass = None, out: Out = None, output: OutputOptions
) -> None:
    """Write selectors and affinity for manifests of your own."""
    with output.session() as run:
        _emit(run, "affinity", out, runtime_class=runtime_class)


def emit_containers(
    *,
    image: Image = None,
    image_prefix: ImagePrefix = None,
    out: Out = None,
    output: OutputOptions,
) -> None:
    """Write what the groups' images are built from."""
    with output.session() as run:
        _emit(run, "containers", out, image=image, image_prefix=image_prefix)


def emit_nodepools(*, node_class: NodeClass = None, out: Out = None, output: OutputOptions) -> None:
    """Write Karpenter pools and cluster-autoscaler tags by class."""
    with output.session() as run:
        _emit(run, "nodepools", out, node_class=node_class)


def emit_rbac(
    *, namespace: Namespace = "fleetbuild", out: Out = None, output: OutputOptions
) -> None:
    """Write a ServiceAccount with the rights that fleetbuild needs.

    A policy beside it limits the account to fleetbuild's own labels.
    """
    with output.session() as run:
        import fleetbuild
        from fleetbuild.extensions.kubernetes.config import Kubernetes
        from fleetbuild.extensions.kubernetes.emit.writers import login
        from fleetbuild.extensions.kubernetes.manifests.options import Delivery

        if fleetbuild.Fleet(state_dir=run.state_dir).last_plan():
            _emit(run, "rbac", out, namespace=namespace)
            return
        # A plan from the cluster may need this login.
        file = fleetbuild.find_config(".")
        config = fleetbuild.load_config(file) if file else fleetbuild.Config()
        domain = config.section(Kubernetes).label_domain
        files = login(domain, Delivery(namespace=namespace))
        tell(run, files.written(folder_of(run, "rbac", out)))


def emit_labeller(
    *,
    image: Image = None,
    namespace: Namespace = "fleetbuild",
    out: Out = None,
    output: OutputOptions,
) -> None:
    """Write a Deployment that labels the cluster's Nodes.

    It also labels Nodes that join. --image names an image that holds fleetbuild; `make image`
    builds one.
    """
    with output.session() as run:
        _emit(run, "labeller", out, image=image, namespace=namespace)


def emit_policy(
    *, image_prefix: ImagePrefix = None, out: Out = None, output: OutputOptions
) -> None:
    """Write a policy that places pods by one label.

    A pod with that label gets the group's selector and, with --image-prefix, its image.
    """
    with output.session() as run:
        _emit(run, "policy", out, image_prefix=image_prefix)


Built = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="The folder with the Jobs' wheels, one folder per wheel."),
]


def store_add(
    *,
    folder: Built,
    output: OutputOptions,
) -> None:
    """Audit and store wheels that Jobs built in a cluster."""
    with output.session() as run:
        import fleetbuild
        from fleetbuild.cli.show.result import wheel_lines
        from fleetbuild.extensions.kubernetes.cluster_builds import store_built_wheels

        store = fleetbuild.Fleet(state_dir=output.state_dir).store
        results = store_built_wheels(store, folder)
        if output.json:
            wheels = [result.model_dump(mode="json") for result in results]
            run.out.document({"wheels": wheels})
        else:
            run.out.say(*wheel_lines(results))
        run.exit_code = 7 if any(result.state == "refused" for result in results) else 0


COMMANDS = (
    emit_k8s,
    emit_kustomize,
    emit_labels,
    emit_affinity,
    emit_containers,
    emit_nodepools,
    emit_rbac,
    emit_labeller,
    emit_policy,
    store_add,
)


def _fleet(run: Session, cluster: ClusterOptions) -> Fleet:
    import fleetbuild
    from fleetbuild.cli import steps

    return fleetbuild.Fleet(state_dir=run.state_dir, **steps.fleet_options(cluster=cluster))


def _emit(run: Session, kind: str, out: Path | None, **delivery: Any) -> None:
    from fleetbuild.extensions.kubernetes.manifests.options import Delivery

    emit(run, kind, out, delivery=Delivery(**delivery))


def _emit_with_labels(
    run: Session,
    kind: str,
    out: Path | None,
    labels: LabelOptions,
    changes: Mapping[str, Any],
    **options: Any,
) -> None:
    """Write the files of a kind, and say which; with --apply, label the cluster's Nodes too."""
    fleet = _fleet(run, labels)
    emitted = fleet.emit(kind, out=folder_of(run, kind, out), **options)
    tell(run, emitted, (lambda: _label(run, fleet, labels, **changes)) if labels.apply else None)


def _label(
    run: Session, fleet: Fleet, options: LabelOptions, *, remove: bool = False, **changes: Any
) -> dict[str, Any]:
    """Set or remove labels in the cluster, and say of which Nodes; return the document about it."""
    from fleetbuild.cli.show.progress import waiting
    from fleetbuild.extensions.kubernetes.cluster_labels import label, unlabel
    from fleetbuild.extensions.kubernetes.show import labelled_lines, unlabelled_lines

    with waiting(run.out, "Removing labels" if remove else "Labelling"):
        change = unlabel if remove else label
        labelled = change(fleet, force=options.force_conflicts, **changes)
    run.out.say(*(unlabelled_lines if remove else labelled_lines)(labelled))
    run.exit_code = labelled.exit_code
    return labelled.model_dump(mode="json")
