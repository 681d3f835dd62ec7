"""Which nodes are asked for the image of build.container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetbuild.extension import PlanBasis
from fleetbuild.extensions.containers.image import with_containers
from fleetbuild.models import Config, Container, Facts, Node
from tests.factories.fleets import facts, inventory

IMAGE = "example.org/old:1"
CONFIG = Config.model_validate({"build": {"container": IMAGE}})
FLEET = {
    "a": facts(),
    "b": facts(),
    "lost": Facts(state="unreachable"),
    "desk": Facts(state="unsupported"),
}


def asked_for(*builders: str) -> tuple[list[str], Mapping[str, Facts]]:
    """The nodes that were asked, and the facts."""
    asked: list[str] = []

    def look(nodes: Sequence[Node], image: str) -> Mapping[str, Container]:
        asked.extend(node.name for node in nodes)
        return {node.name: Container(image=image, id="1" * 64) for node in nodes}

    nodes = inventory(["a", "b", "lost", "desk"])
    return asked, with_containers(PlanBasis(nodes, FLEET, CONFIG, builders), look)


def test_without_named_builders_every_linux_node_that_answers_is_asked() -> None:
    assert asked_for()[0] == ["a", "b"]


def test_only_named_builders_are_asked_and_no_other_node_builds_by_itself() -> None:
    asked, known = asked_for("b")
    assert asked == ["b"]
    assert known["b"].container == Container(image=IMAGE, id="1" * 64)
    assert known["a"].container is not None
    assert known["a"].container.problem == "is not among build.builders"


def test_captures_cannot_be_asked() -> None:
    known = with_containers(PlanBasis(inventory(["a"]), {"a": FLEET["a"]}, CONFIG, ()), None)
    assert known["a"].container is not None
    assert "captures" in (known["a"].container.problem or "")
    assert "--facts" in (known["a"].container.fix or "")
