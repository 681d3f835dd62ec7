"""The login that `emit rbac` writes: its rights and the policy that limits them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fleetbuild import Fleet
from fleetbuild.cli import app
from fleetbuild.emit.emission import EmittedFiles
from fleetbuild.errors import ConfigError, UsageError
from fleetbuild.extensions.kubernetes.emit.rbac import POLICY, ROLES, login_files
from fleetbuild.extensions.kubernetes.manifests.options import Delivery
from fleetbuild.plan.document.serialize import with_digest
from tests.factories.hardware_classes import plan_of
from tests.factories.schemas import NEWEST, OLDEST, accept


def documents(namespace: str = "fleetbuild", domain: str = "fleetbuild.dev") -> dict[str, Any]:
    files = login_files(domain, namespace)
    found = (each for name in (ROLES, POLICY) for each in yaml.safe_load_all(files[name]))
    return {each["kind"]: each for each in found}


def test_kubernetes_takes_the_files() -> None:
    found = documents()
    assert list(found) == [
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    ]  # fmt: skip
    for kind, each in found.items():
        accept(each, NEWEST)
        if "Admission" not in kind:
            accept(each, OLDEST)


def test_the_login_has_the_rights_that_fleetbuild_uses_and_no_others() -> None:
    rules = {
        rule["resources"][0]: rule["verbs"] for rule in documents()["ClusterRole"]["rules"]
    }  # fmt: skip
    assert rules == {
        "nodes": ["list", "patch"],
        "pods": ["list"],
        "nodefeatures": ["list"],
        "resourceslices": ["list"],
    }
    role = documents()["Role"]
    (rule,) = role["rules"]
    assert role["metadata"]["namespace"] == "default"
    assert (rule["apiGroups"], rule["resources"]) == (["events.k8s.io"], ["events"])
    assert rule["verbs"] == ["create"]


def test_the_policy_is_for_the_login_that_is_bound() -> None:
    found = documents("team-a")
    (subject,) = found["ClusterRoleBinding"]["subjects"]
    assert found["RoleBinding"]["subjects"] == [subject]
    account = found["ServiceAccount"]["metadata"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    (condition,) = found["ValidatingAdmissionPolicy"]["spec"]["matchConditions"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    assert condition["expression"] == f"request.userInfo.username == '{user}'"
    binding = found["ValidatingAdmissionPolicyBinding"]
    assert binding["spec"]["policyName"] == found["ValidatingAdmissionPolicy"]["metadata"]["name"]


def test_logins_of_two_namespaces_have_separate_policies() -> None:
    for kind in ("ClusterRoleBinding", "RoleBinding", "ValidatingAdmissionPolicy"):
        one, other = (documents(name)[kind]["metadata"]["name"] for name in ("a", "b"))
        assert one != other
    for kind in ("ClusterRole", "Role"):
        assert documents("a")[kind] == documents("b")[kind]


def test_the_policy_allows_the_label_domain_alone() -> None:
    spec = documents(domain="x.node-restriction.kubernetes.io")["ValidatingAdmissionPolicy"]["spec"]
    prefix = {each["name"]: each["expression"] for each in spec["variables"]}["prefix"]
    assert prefix == "'x.node-restriction.kubernetes.io/'"
    assert all(each["reason"] == "Forbidden" for each in spec["validations"])


def test_a_domain_that_cannot_be_one_never_gets_into_an_expression() -> None:
    with pytest.raises(ConfigError, match="not a valid prefix of a label"):
        login_files("x' || true || '", "fleetbuild")


@pytest.mark.parametrize("name", ["Team", "a.b", "a'b", "", "-a", "a" * 64])
def test_a_namespace_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a valid name of a namespace"):
        Delivery(namespace=name)


def test_the_login_is_written_before_the_first_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan from the cluster needs it."""
    (tmp_path / "fleetbuild.yml").write_text("kubernetes: {label_domain: example.org}\n")
    monkeypatch.chdir(tmp_path)
    words = ["emit", "rbac", "--state-dir", "state", "--out", "out"]
    assert CliRunner().invoke(app, words).exit_code == 0
    written = Path("out")
    assert sorted(path.name for path in written.iterdir()) == sorted([ROLES, POLICY])
    assert "'example.org/'" in (written / POLICY).read_text()
    planned = plan_of("cpu-avx2").model_copy(update={"label_domain": "planned.example.org"})
    Fleet(state_dir="state").save_plan(with_digest(planned))
    assert CliRunner().invoke(app, words).exit_code == 0
    assert "'planned.example.org/'" in (written / POLICY).read_text()


# A label domain that kubelets may not use ---------------------------------------------------------

RESERVED = "fleetbuild.node-restriction.kubernetes.io"


def emitted(kind: Any, domain: str, tmp_path: Path) -> EmittedFiles:
    plan = plan_of("sm86-avx2", "cpu-avx2").model_copy(update={"label_domain": domain})
    return Fleet(state_dir=tmp_path / "state").emit(kind, plan=plan)


def test_all_labels_and_selectors_have_the_reserved_domain(tmp_path: Path) -> None:
    for kind in ("k8s", "labels", "nfd", "affinity", "kustomize", "kueue", "nodepools"):
        texts = "".join(emitted(kind, RESERVED, tmp_path).files.values())
        assert f"{RESERVED}/" in texts
        assert "fleetbuild.dev/" not in texts


def test_a_device_class_has_no_resource_of_a_reserved_domain(tmp_path: Path) -> None:
    """Kubernetes refuses it as `not a valid extended resource name`."""
    made, usual = (emitted("dra", domain, tmp_path) for domain in (RESERVED, "fleetbuild.dev"))
    (ours,) = yaml.safe_load_all(made.files["deviceclasses.yaml"])
    assert ours["metadata"]["name"] == f"sm86.{RESERVED}"
    assert "extendedResourceName" not in ours["spec"]
    accept(ours, NEWEST)
    assert "plain limit" not in made.files["deviceclasses.yaml"]
    assert "not by plain limits" in made.warnings[0]
    assert not usual.warnings
    assert "plain limit" in usual.files["deviceclasses.yaml"]


@pytest.mark.parametrize(
    ("kind", "words"), [("nfd", f"extraLabelNs: [{RESERVED}]"), ("nodepools", "--node-labels")]
)
def test_others_that_may_not_set_such_labels_are_named(
    kind: Any, words: str, tmp_path: Path
) -> None:
    assert any(words in each for each in emitted(kind, RESERVED, tmp_path).warnings)
    assert not any(words in each for each in emitted(kind, "fleetbuild.dev", tmp_path).warnings)
