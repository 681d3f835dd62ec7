"""`status` with a cluster: whether the labels of a Node name the release that serves."""

import pytest

from fleetbuild.extensions.kubernetes.cluster_labels import with_labels
from fleetbuild.extensions.kubernetes.labels.labeller import LabelTargets
from fleetbuild.models import Facts, Manifest, NodeStatus
from tests.factories.fleets import facts
from tests.unit.apply.test_status import MANIFEST, one

NAMES = LabelTargets("x.dev", nodes={"a": "kube-a"}, hardware={"a": {"x.dev/isa": "avx"}})
RIGHT = {
    "x.dev/isa": "avx",
    "x.dev/group": "g",
    "x.dev/release": "r1",
}
OTHERS = {"team": "vision", "x.dev/release.staging": "r9", "x.dev/of-someone": "else"}


def labelled(labels: dict[str, str] | None, current: Manifest | None = MANIFEST) -> NodeStatus:
    status = one(facts("avx", release={"default": current} if current else {}))
    return with_labels(status, labels, current, NAMES)


def test_labels_of_the_serving_release_are_right() -> None:
    status = labelled({**RIGHT, **OTHERS})
    assert (status.labels, status.labels_sentence) == ("right", "")


@pytest.mark.parametrize(
    ("labels", "current", "said"),
    [
        (RIGHT | {"x.dev/release": "r0"}, MANIFEST, "x.dev/release is r0 but should be r1."),
        (RIGHT | {"x.dev/isa": "avx2"}, MANIFEST, "x.dev/isa is avx2 but should be avx."),
        (RIGHT | {"x.dev/package.old": "1"}, MANIFEST, "package.old is 1 but should not be set"),
        ({"x.dev/isa": "avx"}, MANIFEST, "x.dev/group is missing but should be g;"),
        (RIGHT, None, "x.dev/release is r1 but should not be set."),
        (RIGHT, MANIFEST.model_copy(update={"verified": False}), "release is r1 but should n"),
    ],
)
def test_labels_of_another_release_are_wrong(
    labels: dict[str, str], current: Manifest | None, said: str
) -> None:
    status = labelled({**labels, **OTHERS}, current)
    assert status.labels == "wrong"
    assert said in status.labels_sentence


def test_nodes_without_a_cluster_node_or_without_facts_get_no_label_differences() -> None:
    assert labelled(None).labels_sentence == "The cluster has no Node kube-a."
    away = with_labels(one(Facts(state="unreachable")), RIGHT, None, NAMES)
    assert away.labels is None
