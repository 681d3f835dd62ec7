"""The section `kubernetes:` of fleetbuild.yml, and what it calls each node.

In: fleetbuild.yml, the last plan and the variables of hosts. Out: the section, names of Nodes.
"""

from __future__ import annotations

from pydantic import Field

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config, Node, Plan
from fleetbuild.models._base import Frozen
from fleetbuild.models.plan import LabelsBy

KEY = "kubernetes"


class Pods(Frozen):
    """What a site's policies ask of every pod and Job that is emitted."""

    labels: dict[str, str] = Field({}, description="labels of the objects and their pods")
    image_pull_secrets: tuple[str, ...] = Field(
        (), description="the names of Secrets with logins of registries"
    )
    tolerations: tuple[dict[str, str | int], ...] = Field(
        (), description="tolerations, as a pod has them; for workloads of your own too"
    )
    priority_class: str | None = Field(
        None, min_length=1, description="the name of a PriorityClass"
    )
    cpu_limit: str | None = Field(
        None,
        pattern=r"^([1-9][0-9]*(\.[0-9]+)?|[5-9][0-9]{2}m|[1-9][0-9]{3,}m)$",
        description='the CPU limit of each container, such as "2"; 500m at least, which a build'
        " asks for. For namespaces with a ResourceQuota; default: none",
    )
    ttl: int | None = Field(
        None,
        ge=0,
        description="seconds after which a finished Job is deleted; default: never, since Argo CD"
        " and Flux would run a deleted Job again",
    )
    queue: str | None = Field(
        None, min_length=1, description="the LocalQueue of Kueue that Jobs wait in"
    )


class Kubernetes(Frozen):
    """The names and labels of nodes in the cluster, and what emitted pods have."""

    label_domain: str = Field("fleetbuild.dev", description="the prefix of all labels")
    labels: LabelsBy = Field(
        "files",
        description="what labels nodes. files: you do, with the files that apply writes; nfd: Node "
        "Feature Discovery does, from a feature file on each node; api: apply does, by your "
        "kubeconfig",
    )
    node_name: str = Field(
        "{{ kubernetes_node | default(inventory_hostname) }}",
        description="a Jinja2 template over the host's variables",
    )
    package_labels: bool = Field(
        False,
        description="whether nodes also get a label for each planned package, with its version",
    )
    pods: Pods = Pods()


def installed_section(plan: Plan, config: Config) -> Kubernetes:
    """Return the settings that a plan was applied with.

    Who labels nodes may change without a plan: that is the file's setting, if there is a file.
    """
    return Kubernetes(
        label_domain=plan.label_domain,
        labels=plan.labels if config.folder is None else config.section(Kubernetes).labels,
        package_labels=plan.package_labels,
    )


def kubernetes_node(node: Node, template: str) -> str:
    """Return the name of the node's Kubernetes Node."""
    # An apply of a plan that changes nothing needs neither: 0.1 s.
    from jinja2 import TemplateError  # noqa: PLC0415

    from fleetbuild.recipes.templates import rendered  # noqa: PLC0415

    values = {"inventory_hostname": node.name, **node.variables}
    try:
        return rendered(template, values)
    except (TemplateError, TypeError, ValueError, ArithmeticError) as problem:
        raise ConfigError(
            f"kubernetes.node_name cannot be rendered for {node.name}: {problem}.",
            "Give the template a default, such as "
            "{{ kubernetes_node | default(inventory_hostname) }}.",
        ) from None
