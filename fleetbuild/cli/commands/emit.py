"""`fleetbuild emit KIND`: write files from the last plan, with labels of what serves on each node.

Each kind is a command with its own options. Kinds of extensions are commands too: their options are
the keyword parameters of the function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import fleetbuild
from fleetbuild import UsageError
from fleetbuild.cli.familiar import Command, refuse
from fleetbuild.cli.options import ClusterOptions, OptionGroup, OutputOptions, expand
from fleetbuild.cli.session import Session

if TYPE_CHECKING:
    from fleetbuild import Delivery, EmitKind, Fleet


class Way(StrEnum):
    """How a pod gets a release."""

    HOSTPATH = "hostpath"
    IMAGE = "image"
    VOLUME = "volume"
    INIT = "init"


class Kind(StrEnum):
    """The kinds of workload."""

    DEPLOYMENT = "deployment"
    JOB = "job"
    DAEMONSET = "daemonset"


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="The folder to write to; default: .fleetbuild/manifests/KIND.",
    ),
]
WayOfDelivery = Annotated[
    Way | None,
    typer.Option(
        "--way",
        help="How a pod gets the release: from its node (hostpath, the default), an image of the "
        "group's own, an image volume, or an init container.",
    ),
]
KindOfWorkload = Annotated[
    Kind | None, typer.Option("--kind", help="What runs the pods; default: deployment.")
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
        return fleetbuild.Delivery(
            way=way.value,
            kind=(self.kind or Kind.DEPLOYMENT).value,
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


class KindCommand(Command):
    """The command of a kind, which says where an option of another kind belongs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse options of other kinds, then parse the arguments."""
        kinds = ctx.parent.command.commands
        own = {name for param in self.params for name in param.opts}
        for arg in args:
            name = arg.partition("=")[0]
            fitting = [kind for kind, command in kinds.items() if name in _options_of(command)]
            if name.startswith("-") and name not in own and fitting:
                refuse(
                    f"{name} does not go with emit {self.name}.",
                    f"Leave it out. It goes with: {', '.join(f'emit {kind}' for kind in fitting)}.",
                )
        return super().parse_args(ctx, args)


def _options_of(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts}


class KindGroup(TyperGroup):
    """The kinds as commands. One of an extension is loaded when its command is shown or run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all kinds."""
        ours = super().list_commands(ctx)
        return [*ours, *sorted(fleetbuild.emit_kinds().keys() - set(ours))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a kind, or None."""
        if (ours := super().get_command(ctx, cmd_name)) is not None:
            return ours
        kind = fleetbuild.emit_kinds().get(cmd_name)
        return _command_of(kind) if kind else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Refuse a kind that neither the core nor an extension has."""
        if args and args[0] not in self.list_commands(ctx):
            kinds = ", ".join(self.list_commands(ctx))
            refuse(
                f"fleetbuild emit does not accept {args[0]!r} as a kind.", f"Use one of: {kinds}."
            )
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=KindGroup,
    help="Write Kubernetes manifests and other files for the last plan.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def _command(function: Callable[..., None]) -> Callable[..., None]:
    return app.command(cls=KindCommand)(expand(function))


@_command
def k8s(
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
        _emit(run, "k8s", out, labels, delivery=pods.delivery("k8s"))


@_command
def kustomize(*, pods: DeliveryOptions, out: Out = None, output: OutputOptions) -> None:
    """Write a Kustomize component per group for your workloads.

    A base and overlays with smoke workloads use them.
    """
    with output.session() as run:
        _emit(run, "kustomize", out, delivery=pods.delivery("kustomize"))


@_command
def helm(*, pods: DeliveryOptions, out: Out = None, output: OutputOptions) -> None:
    """Write a values file per group, for a Helm chart of yours."""
    with output.session() as run:
        _emit(run, "helm", out, delivery=pods.delivery("helm"))


@_command
def labels(
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
            _emit(run, "labels", out, labels, changes)
            return
        for option, value in {"--apply": labels.apply, "--out": out}.items():
            if value:
                raise UsageError(f"{option} does not go with --remove.", f"Leave out {option}.")
        document = {
            "format_version": "1.0",
            **_label(run, _fleet(run, labels), labels, remove=True),
        }
        if output.json:
            run.out.document(document)


@_command
def affinity(*, runtime_class: RuntimeClass = None, out: Out = None, output: OutputOptions) -> None:
    """Write selectors and affinity for manifests of your own."""
    with output.session() as run:
        delivery = fleetbuild.Delivery(runtime_class=runtime_class)
        _emit(run, "affinity", out, delivery=delivery)


@_command
def containers(
    *,
    image: Image = None,
    image_prefix: ImagePrefix = None,
    out: Out = None,
    output: OutputOptions,
) -> None:
    """Write what the groups' images are built from."""
    with output.session() as run:
        delivery = fleetbuild.Delivery(image=image, image_prefix=image_prefix)
        _emit(run, "containers", out, delivery=delivery)


@_command
def nodepools(*, node_class: NodeClass = None, out: Out = None, output: OutputOptions) -> None:
    """Write Karpenter pools and cluster-autoscaler tags by class."""
    with output.session() as run:
        delivery = fleetbuild.Delivery(node_class=node_class)
        _emit(run, "nodepools", out, delivery=delivery)


@_command
def rbac(*, namespace: Namespace = "fleetbuild", out: Out = None, output: OutputOptions) -> None:
    """Write a ServiceAccount with the rights that fleetbuild needs.

    A policy beside it limits the account to fleetbuild's own labels.
    """
    with output.session() as run:
        delivery = fleetbuild.Delivery(namespace=namespace)
        _emit(run, "rbac", out, delivery=delivery)


@_command
def labeller(
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
        delivery = fleetbuild.Delivery(image=image, namespace=namespace)
        _emit(run, "labeller", out, delivery=delivery)


@_command
def policy(*, image_prefix: ImagePrefix = None, out: Out = None, output: OutputOptions) -> None:
    """Write a policy that places pods by one label.

    A pod with that label gets the group's selector and, with --image-prefix, its image.
    """
    with output.session() as run:
        delivery = fleetbuild.Delivery(image_prefix=image_prefix)
        _emit(run, "policy", out, delivery=delivery)


def _command_of(kind: EmitKind) -> Any:
    """Return the command of a kind, with the keyword parameters of its function as options."""
    broken: UsageError | None = None
    try:
        function = kind.load()
        own = [
            parameter
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY
        ]
        help_ = inspect.getdoc(function) or f"Write {kind.name}, by an extension."
    except UsageError as problem:
        broken, own, help_ = problem, [], problem.message

    def command(*, out: Out = None, output: OutputOptions, **options: Any) -> None:
        with output.session() as run:
            if broken:
                raise broken
            _emit(run, kind.name, out, options=options)

    shared = list(inspect.signature(command, eval_str=True).parameters.values())[:-1]
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    alone = typer.Typer(rich_markup_mode=None, add_completion=False)
    alone.command(name=kind.name, cls=KindCommand, help=help_)(expand(command))
    return typer.main.get_command(alone)


def _fleet(run: Session, cluster: ClusterOptions | None = None) -> Fleet:
    from fleetbuild.cli import steps

    return fleetbuild.Fleet(state_dir=run.state_dir, **steps.fleet_options(cluster=cluster))


def _emit(
    run: Session,
    kind: str,
    out: Path | None,
    labels: LabelOptions | None = None,
    changes: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> None:
    """Write the files of a kind, and say which; with --apply, label the cluster's Nodes too."""
    fleet = _fleet(run, labels)
    emitted = fleet.emit(kind, out=out or run.state_dir / "manifests" / kind, **inputs)
    written = [str(path) for path in emitted.paths]
    if not run.out.json:
        run.out.say(*(f"Wrote {file}" for file in written))
        for sentence in emitted.warnings:
            run.out.warn(f"warning: {sentence}")
    labelled = _label(run, fleet, labels, **(changes or {})) if labels and labels.apply else {}
    if run.out.json:
        document = {"files": written, "warnings": list(emitted.warnings), **labelled}
        run.out.document({"format_version": "1.0", **document})


def _label(
    run: Session, fleet: Fleet, options: LabelOptions, *, remove: bool = False, **changes: Any
) -> dict[str, Any]:
    """Set or remove labels in the cluster, and say of which Nodes; return the document about it."""
    from fleetbuild.cli.show.progress import waiting
    from fleetbuild.cli.show.result import labelled_lines, unlabelled_lines

    with waiting(run.out, "Removing labels" if remove else "Labelling"):
        change = fleet.unlabel if remove else fleet.label
        labelled = change(force=options.force_conflicts, **changes)
    run.out.say(*(unlabelled_lines if remove else labelled_lines)(labelled))
    run.exit_code = labelled.exit_code
    return labelled.model_dump(mode="json")
