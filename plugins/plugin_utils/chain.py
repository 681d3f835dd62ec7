"""The nodes of one playbook that give files to each other, each to the next one.

Ansible works on each node in a process of its own. These processes share a folder of the run.
"""

import fcntl
import hashlib
import json
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..module_utils.relay import LINGER, PIECE

SOURCES = 4  # nodes that a node asks, one after the other
TRIES = 3  # nodes that get nothing from others, before no more try
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9.:_%-]{0,252}")


@dataclass(frozen=True)
class Link:
    """A node's place in the chain: its number, and who gives it files, the nearest node first."""

    number: int
    token: str
    sources: dict[str, str]  # address -> node
    tokens: dict[str, str]  # address -> the token of that node


class Chain:
    """The chain of the run that this folder belongs to."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def join(self, node: str, address: str, hashes: Sequence[str], *, again: bool = False) -> Link:
        """Add a node to the end; its sources have all of these files, or are getting them."""
        with self._shared("state") as state:
            if not state:
                state.update(failed=0, links=[])
            links, until = state["links"], time.time() - LINGER / 2
            able = [
                link
                for link in reversed(links if state["failed"] < TRIES else [])
                if (link["ended"] is None or link["ended"] > until)
                and set(hashes) <= set(link["hashes"])
                and link["address"] not in ("", address)
            ]
            # Who listens at a node's port in its place learns the token of that node alone.
            own = {"address": address, "token": secrets.token_hex(16)}
            sources = {link["address"]: link["node"] for link in able[:SOURCES]}
            about = {"hashes": hashes, "ended": None, "leaves": bool(sources) and not again}
            links.append({"node": node, **own, **about})
            tokens = {link["address"]: link["token"] for link in able[:SOURCES]}
            return Link(len(links) - 1, own["token"], sources, tokens)

    def end(self, link: Link, *, serves: bool) -> None:
        """Note that a node has its files, and whether it gives them to others."""
        with self._shared("state") as state:
            state["links"][link.number]["ended"] = time.time() if serves else 0

    def leave(self, link: Link) -> None:
        """Note that a node lost its sources, and wait until the controller sends to no other node.

        Then it joins again. So do the nodes behind it, so nobody asks them now. A node of another
        group is not behind it: neither has all files of the other.
        """
        with self._shared("state") as state:
            own = set(state["links"][link.number]["hashes"])
            for each in state["links"]:
                is_near = own <= set(each["hashes"]) or own >= set(each["hashes"])
                if is_near and each["leaves"] and each["ended"] is None:
                    each["ended"] = 0
        with self.turn(link, 0):
            pass

    def count(self, *, given: bool) -> None:
        """Count whether a node got its files from others: perhaps no node reaches another one."""
        with self._shared("state") as state:
            state["failed"] += -1 if given else 1

    def pieces(self, path: str, sha256: str) -> dict[str, Any]:
        """Return the size of a file and the hashes of its pieces, which one process computes."""
        with self._shared(sha256) as found:
            if not found:
                with open(path, "rb") as file:
                    pieces = iter(lambda: file.read(PIECE), b"")
                    found["pieces"] = [hashlib.sha256(piece).hexdigest() for piece in pieces]
                    found["size"] = file.tell()
            return {"sha256": sha256, **found}

    @contextmanager
    def turn(self, link: Link, seconds: float) -> Iterator[None]:
        """Wait until the controller sends to no other node; the turn ends after these seconds.

        So a node that takes its files slowly does not keep the others from theirs.
        """
        while not self._takes_turn(link, seconds):
            time.sleep(0.1)
        try:
            yield
        finally:
            with self._shared("turn") as turn:
                if turn["number"] == link.number:
                    turn["until"] = 0

    def _takes_turn(self, link: Link, seconds: float) -> bool:
        with self._shared("turn") as turn:
            now = time.monotonic()  # of the machine: all processes have the same
            is_free = turn.get("until", 0) <= now
            if is_free:
                turn.update(number=link.number, until=now + seconds)
            return is_free

    @contextmanager
    def _shared(self, name: str) -> Iterator[dict[str, Any]]:
        """Lock a file, yield its content, and save its changes, all of them or none."""
        path = self._folder / f"{name}.json"
        with (self._folder / name).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = json.loads(path.read_text("utf-8")) if path.exists() else {}
            yield content
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(content), "utf-8")
            fresh.replace(path)


def plain_address(value: object) -> str:
    """Return an address of the inventory if a node can be asked for it, else ""."""
    return str(value) if _ADDRESS.fullmatch(str(value)) else ""
