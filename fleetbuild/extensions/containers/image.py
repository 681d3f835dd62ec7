"""Look into the image of build.container on the nodes that may build: run the probe in it.

In: nodes, an image. Out: for each node what the image holds, or why builds cannot use it there.
Nothing is pulled.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

from fleetbuild.extension import PlanBasis
from fleetbuild.models import Container, Facts, Login, Node, Unreachable
from fleetbuild.probe.parsing.facts import facts_of
from fleetbuild.probe.parsing.framing import split
from fleetbuild.probe.parsing.text import short
from fleetbuild.probe.probing import ask, script, section_seconds
from fleetbuild.probe.transport.base import Answer

_ID = re.compile(r"(?:sha256:)?([0-9a-f]{64})", re.ASCII)
_ENGINES = ("podman", "docker")
_START_SECONDS = 60  # a first start on a slow disk, besides the probe itself
_END = b"\nend of the probe\n"


def with_containers(
    basis: PlanBasis, look: Callable[[Sequence[Node], str], Mapping[str, Container]] | None
) -> dict[str, Facts]:
    """Return the facts with what build.container's image holds on each node that may build.

    Without named builders, all may. `look` asks nodes; without it, no node can be asked.
    """
    image, nodes, facts = str(basis.config.build.container), basis.inventory.nodes, basis.facts
    named = {*basis.builders, *(node.name for node in nodes if node.builder)}
    apart = Container(image=image, problem="is not among build.builders")
    if look is None:
        apart = Container(
            image=image,
            problem=f"cannot be asked for the image {image}: this plan is made from captures",
            fix="Plan without --facts, or without build.container.",
        )
    asked = [
        node
        for node in nodes
        if look and (not named or node.name in named) and facts[node.name].state == "ok"
    ]
    containers = look(asked, image) if look and asked else {}
    return {
        name: node_facts.model_copy(update={"container": containers.get(name, apart)})
        for name, node_facts in facts.items()
    }


def look_into_image(
    nodes: Sequence[Node], image: str, *, timeout: float, forks: int
) -> dict[str, Container]:
    """Return what the image holds on each of these nodes."""
    nonce = f"fleetbuild-{secrets.token_hex(16)}"
    answers = ask(
        nodes,
        container_script(),
        (nonce, image, section_seconds(timeout)),
        functools.partial(_read, nonce=nonce, image=image),
        timeout=timeout + _START_SECONDS,
        forks=forks,
    )
    return {
        name: Container(
            image=image,
            problem=f"did not answer when asked for the image {image}: {one.reason}",
            fix=one.fix or None,
        )
        if isinstance(one, Unreachable)
        else one
        for name, one in answers.items()
    }


def container_script() -> bytes:
    """Return the script that starts the probe in the image."""
    return files(__package__ or "").joinpath("container.sh").read_bytes() + script() + _END


def _read(answer: Answer, _login: Login, *, nonce: str, image: str) -> Container:
    return read_container(answer.out.decode(errors="replace"), nonce, image)


def read_container(output: str, nonce: str, image: str) -> Container:
    """Return what a node said about the image. The node is not trusted."""
    words = [
        line.removeprefix(nonce).split(maxsplit=1)
        for line in output[:20_000].splitlines()
        if line.startswith(f"{nonce} ")
    ]
    values = {pair[0]: pair[1] for pair in reversed(words) if len(pair) == 2}  # the first counts
    engine = values.get("engine")
    if engine not in _ENGINES:
        return Container(
            image=image,
            problem="has no podman and no docker, which build.container needs",
            fix="Install podman on a node that builds, such as: apt-get install podman. Or name "
            "other nodes in build.builders.",
        )
    image_id = _ID.fullmatch(values.get("id", "").strip())
    if image_id is None:
        why = short(values.get("said", "no reason given"), 200).rstrip(".")
        absent = re.search("image not known|no such image", why, re.IGNORECASE)
        return Container(
            image=image,
            problem=f"has no image {image}" + ("" if absent else f" ({why})"),
            fix=f"Run there, as the user that Ansible becomes: {engine} pull {image}",
        )
    capture = split(output, nonce)
    facts = facts_of(capture) if capture else None
    if facts is None or facts.libc is None:
        tail = [line for line in output.splitlines()[-20:] if line and not line.startswith(nonce)]
        return Container(
            image=image,
            problem=f"cannot look into the image {image}"
            f" ({short(tail[-1] if tail else 'its C library is unknown', 300).rstrip('.')})",
            fix=f"Try it there: {engine} run --rm --network none --entrypoint sh {image} -c id. The"
            " image has to have the node's architecture, sh and a C library.",
        )
    if {"python", "toolchain"} & {*facts.unanswered}:
        return Container(
            image=image,
            problem=f"did not list the tools in the image {image} in time",
            fix="Plan again with a longer --timeout.",
        )
    return Container(
        image=image,
        id=image_id[1],
        libc=facts.libc,
        libstdcxx=facts.libstdcxx,
        pythons=facts.pythons,
        toolchain=facts.toolchain,
    )
