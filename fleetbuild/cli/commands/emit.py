"""`fleetbuild emit`: write manifests of the last plan, with labels of what serves on each node."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetbuild import UsageError
from fleetbuild.cli import options
from fleetbuild.cli.session import Session


class What(StrEnum):
    """The kinds of files that can be written."""

    K8S = "k8s"
    NFD = "nfd"
    LABELS = "labels"
    AFFINITY = "affinity"
    KUSTOMIZE = "kustomize"
    CONTAINERS = "containers"
    BUILDS = "builds"
    NIX = "nix"
    FLOX = "flox"
    DRA = "dra"
    KUEUE = "kueue"
    NODEPOOLS = "nodepools"
    RBAC = "rbac"
    WINDOWS = "windows"


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


Written = Annotated[
    What,
    typer.Argument(
        metavar="WHAT",
        help="k8s: labels and workloads; nfd: feature files and NodeFeatureRules; labels: labels "
        "alone; affinity: selectors and affinity for manifests of your own; kustomize: a base with "
        "an overlay per group; containers: what the groups' images are built from; builds: "
        "the plan's builds as Jobs in the cluster; dra: a DeviceClass per SM; kueue: a "
        "ResourceFlavor per class; nodepools: Karpenter pools and tags for cluster-autoscaler, per "
        "class; rbac: a ServiceAccount with the rights that fleetbuild needs, and a policy that "
        "limits it to its own labels; nix: Nix expressions that install each group's wheels by "
        "hash, or build its target from nixpkgs; flox: the same as Flox environments; "
        "windows: a build script in PowerShell for each group of Windows nodes, where fleetbuild "
        "itself does not build.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="The folder to write to; default: .fleetbuild/manifests/WHAT.",
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
Workload = Annotated[
    Path | None,
    typer.Option(
        "--workload",
        metavar="FILE",
        help="Your own manifest: write a variant of it for each group.",
    ),
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
    str | None,
    typer.Option(
        "--namespace",
        metavar="NAME",
        help="The namespace of fleetbuild's ServiceAccount; default: fleetbuild.",
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

# The commands that each option goes with. With others it would have no effect, so it is refused.
_GOES_WITH = {
    "--apply": ("k8s", "labels"),
    "--remove": ("labels",),
    "--way": ("k8s", "kustomize"),
    "--kind": ("k8s --way", "kustomize"),
    "--workload": ("k8s",),
    "--image": (
        *(f"{what} --way {way}" for what in ("k8s", "kustomize") for way in Way if way != "image"),
        "k8s --workload --way init",
        "containers",
    ),
    "--image-prefix": (
        *(f"{what} --way image" for what in ("k8s", "kustomize", "k8s --workload")),
        *(f"{what} --way volume" for what in ("k8s", "kustomize", "k8s --workload")),
        "containers",
    ),
    "--index-url": tuple(f"{what} --way init" for what in ("k8s", "kustomize", "k8s --workload")),
    "--runtime-class": ("k8s", "kustomize", "affinity"),
    "--node-class": ("nodepools",),
    "--namespace": ("rbac",),
}


def emit(
    what: Written,
    out: Out = None,
    way: WayOfDelivery = None,
    kind: KindOfWorkload = None,
    workload: Workload = None,
    image: Image = None,
    image_prefix: ImagePrefix = None,
    index_url: IndexUrl = None,
    runtime_class: RuntimeClass = None,
    node_class: NodeClass = None,
    namespace: Namespace = None,
    apply: Apply = False,
    remove: Remove = False,
    force_conflicts: ForceConflicts = False,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    json: options.Json = False,
    verbose: options.Verbose = False,
    state_dir: options.StateDir = options.STATE_DIR,
) -> None:
    """Write Kubernetes manifests and other files for the last plan."""
    with Session(state_dir=state_dir, json=json, verbose=verbose) as run:
        import fleetbuild
        from fleetbuild.cli import steps
        from fleetbuild.report.progress import waiting
        from fleetbuild.report.result import labelled_lines, unlabelled_lines

        _refuse_unused(
            _wanted(what, way, workload),
            {
                "--apply": apply or None,
                "--remove": remove or None,
                "--way": way,
                "--kind": kind,
                "--workload": workload,
                "--image": image,
                "--image-prefix": image_prefix,
                "--index-url": index_url,
                "--runtime-class": runtime_class,
                "--node-class": node_class,
                "--namespace": namespace,
            },
        )
        if not (apply or remove):
            _refuse_without_apply(force_conflicts, kubeconfig, context)
        delivery = fleetbuild.Delivery(
            way=(way or Way.HOSTPATH).value,
            kind=(kind or Kind.DEPLOYMENT).value,
            image=image,
            image_prefix=image_prefix,
            index_url=index_url,
            runtime_class=runtime_class,
            node_class=node_class,
            namespace=namespace or "fleetbuild",
        )
        fleet = fleetbuild.Fleet(
            state_dir=state_dir, **steps.fleet_options(kubeconfig=kubeconfig, context=context)
        )
        if remove:
            _refuse_with_remove({"--apply": apply, "--out": out})
            with waiting(run.out, "Removing labels"):
                labelled = fleet.unlabel(force=force_conflicts)
            run.out.say(*unlabelled_lines(labelled))
            run.exit_code = labelled.exit_code
            if json:
                run.out.document({"format_version": "1.0", **labelled.model_dump(mode="json")})
            return
        emitted = fleet.emit(
            what.value,
            delivery=delivery,
            workload=workload,
            out=out or state_dir / "manifests" / what.value,
        )
        written = [str(path) for path in emitted.paths]
        document: dict[str, Any] = {
            "format_version": "1.0", "files": written, "warnings": list(emitted.warnings)
        }  # fmt: skip
        if not json:
            run.out.say(*(f"Wrote {file}" for file in written))
            for sentence in emitted.warnings:
                run.out.warn(f"warning: {sentence}")
        if apply:
            with waiting(run.out, "Labelling"):
                labelled = fleet.label(force=force_conflicts)
            run.out.say(*labelled_lines(labelled))
            run.exit_code = labelled.exit_code
            document |= labelled.model_dump(mode="json")
        if json:
            run.out.document(document)


def _refuse_without_apply(force: bool, kubeconfig: Path | None, context: str | None) -> None:
    given = {"--force-conflicts": force, "--kubeconfig": kubeconfig, "--context": context}
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} needs --apply or --remove.", f"Add one of them, or leave out {option}."
            )


def _refuse_with_remove(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} does not go with --remove.", f"Leave out {option}.")


def _wanted(what: What, way: Way | None, workload: Path | None) -> str:
    """Return the part of the command line that decides which options go with it."""
    words = [what.value, *(["--workload"] if workload else [])]
    if what in (What.K8S, What.KUSTOMIZE):
        words += ["--way", way or Way.HOSTPATH]
    return " ".join(words)


def _refuse_unused(wanted: str, given: Mapping[str, object]) -> None:
    for option, value in given.items():
        fitting = _GOES_WITH[option]
        if value is not None and not any(wanted.startswith(each) for each in fitting):
            raise UsageError(
                f"{option} does not go with emit {wanted}.",
                f"Leave it out. It goes with: {', '.join(f'emit {each}' for each in fitting)}.",
            )
