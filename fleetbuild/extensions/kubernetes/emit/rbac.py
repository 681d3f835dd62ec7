"""The login that fleetbuild needs in a cluster: its rights, and a policy that limits them.

In: a label domain and a namespace. Out: YAML. RBAC cannot limit the right to change Nodes to single
labels, so an admission policy does.
"""

from __future__ import annotations

from fleetbuild.extensions.kubernetes.labels.node_labels import check_domain
from fleetbuild.extensions.kubernetes.manifests.names import dns_label, object_head
from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, Note, dump

ROLES, POLICY = "rbac.yaml", "admission-policy.yaml"
NAME = "fleetbuild"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io/v1"

_ROLES_HEADER = """\
A ServiceAccount with all rights that fleetbuild uses in the cluster, and no others:
    kubectl create namespace {namespace}
    kubectl apply -f {roles} -f {policy}
A token for a kubeconfig of its own, here for 8 hours:
    kubectl create token {name} --namespace {namespace} --duration 8h
Whoever may impersonate it can instead keep the login they have and add to the kubeconfig's user:
    as: {user}"""
_POLICY_HEADER = """\
Limits this login to labels and annotations of Nodes with the prefix {domain}/. Without this policy,
it may change all labels, annotations and taints of every Node. Changes of all other logins pass.
Needs Kubernetes 1.30. If kubernetes.label_domain changes, emit and apply it again."""
_WHY_PATCH = "Labels, by server-side apply. The policy beside this file limits it to labels."
_WHY_PODS = "With `labels: api`, so that no release is removed that a pod mounts."
_WHY_FEATURES = "For plan --from-cluster, if Node Feature Discovery runs."
_WHY_SLICES = "For plan --from-cluster, if a DRA driver runs."
_WHY_EVENTS = "With --events, as in emit labeller."

_OURS_ALONE = (
    "variables.{was}.all(key, key.startsWith(variables.prefix)"
    " || (key in variables.{is_} && variables.{is_}[key] == variables.{was}[key]))\n"
    "&& variables.{is_}.all(key, key.startsWith(variables.prefix) || key in variables.{was})\n"
)
_LABELS = _OURS_ALONE.format(was="before", is_="after")
_ANNOTATIONS = _OURS_ALONE.format(was="notedBefore", is_="notedAfter")
_METADATA = ("finalizers", "ownerReferences")


def login_files(domain: str, namespace: str) -> dict[str, str]:
    """Return rbac.yaml and admission-policy.yaml."""
    check_domain(domain)
    named = {"name": NAME, "namespace": namespace}
    user = f"system:serviceaccount:{namespace}:{NAME}"
    ours = NAME if namespace == NAME else f"{NAME}-{dns_label(namespace, 40)}"
    about = _ROLES_HEADER.format(roles=ROLES, policy=POLICY, user=user, **named)
    return {
        ROLES: _joined(_roles(named, ours), about),
        POLICY: _joined(_policy(domain, user, ours), _POLICY_HEADER.format(domain=domain)),
    }


def _joined(documents: list[dict[str, object]], header: str) -> str:
    first, *rest = documents
    return "---\n".join([dump(first, header), *map(dump, rest)])


def _roles(account: dict[str, str], name: str) -> list[dict[str, object]]:
    rules = [
        Note(_rule("", "nodes", "list", "patch"), _WHY_PATCH),
        Note(_rule("", "pods", "list"), _WHY_PODS),
        Note(_rule("nfd.k8s-sigs.io", "nodefeatures", "list"), _WHY_FEATURES),
        Note(_rule("resource.k8s.io", "resourceslices", "list"), _WHY_SLICES),
    ]
    events = [Note(_rule("events.k8s.io", "events", "create"), _WHY_EVENTS)]
    there = {"namespace": "default"}  # the one of events about objects without a namespace
    return [
        object_head("v1", "ServiceAccount", **account),
        {**object_head(f"{_RBAC}/v1", "ClusterRole", name=NAME), "rules": rules},
        {
            **object_head(f"{_RBAC}/v1", "ClusterRoleBinding", name=name),
            **_binding("ClusterRole", account),
        },
        {**object_head(f"{_RBAC}/v1", "Role", name=NAME, **there), "rules": events},
        {
            **object_head(f"{_RBAC}/v1", "RoleBinding", name=name, **there),
            **_binding("Role", account),
        },
    ]


def _binding(kind: str, account: dict[str, str]) -> dict[str, object]:
    return {
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": NAME},
        "subjects": [FlowStyle({"kind": "ServiceAccount", **account})],
    }


def _rule(group: str, resource: str, *verbs: str) -> FlowStyle:
    return FlowStyle({"apiGroups": [group], "resources": [resource], "verbs": list(verbs)})


def _policy(domain: str, user: str, name: str) -> list[dict[str, object]]:
    nodes = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["UPDATE"],
        "resources": ["nodes"],
        "scope": "*",  # the default; without it `kubectl apply` reports a change each time
    }
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [FlowStyle(nodes)]},
        "matchConditions": [
            {"name": "this-login", "expression": f"request.userInfo.username == '{user}'"}
        ],
        "variables": [
            {"name": "prefix", "expression": f"'{domain}/'"},
            {"name": "before", "expression": _field("oldObject", "labels", "{}")},
            {"name": "after", "expression": _field("object", "labels", "{}")},
            {"name": "notedBefore", "expression": _field("oldObject", "annotations", "{}")},
            {"name": "notedAfter", "expression": _field("object", "annotations", "{}")},
        ],
        "validations": list(_validations(domain)),
    }
    binding = {"policyName": name, "validationActions": FlowStyle(["Deny"])}
    return [
        {**object_head(_ADMISSION, "ValidatingAdmissionPolicy", name=name), "spec": spec},
        {**object_head(_ADMISSION, "ValidatingAdmissionPolicyBinding", name=name), "spec": binding},
    ]


def _validations(domain: str) -> list[dict[str, str]]:
    only = f"The login of fleetbuild may change only labels and annotations of {domain}/"
    changes = [
        (_LABELS, "other labels"),
        (_ANNOTATIONS, "other annotations"),
        ("object.spec == oldObject.spec", "the spec of a Node"),
        *((_unchanged(field), field) for field in _METADATA),
    ]
    return [
        {"expression": rule, "message": f"{only}, not {what}.", "reason": "Forbidden"}
        for rule, what in changes
    ]


def _unchanged(field: str) -> str:
    return f"{_field('object', field, '[]')} == {_field('oldObject', field, '[]')}"


def _field(whose: str, field: str, empty: str) -> str:
    return f"{whose}.metadata.?{field}.orValue({empty})"
