"""Commands in messages: each `fleetbuild …` that is printed can be pasted.

In: a sentence that names a command, and how this run was started. Out: the sentence; its commands
have the run's inventory and the options of the run that they take: nodes, configuration,
packages, passwords, cluster, state directory. Messages say `fleetbuild verify INVENTORY --repair`
and leave the rest to this module.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

# Options of a run that the next command needs too, by the names of their parameters.
_PLANNING = (
    "config", "limit", "package", "requirement", "requirements", "constraint", "lock", "group",
    "target", "from_cluster", "captures",
)  # fmt: skip
_LASTING = (
    *_PLANNING, "kubeconfig", "context", "ask_pass", "ask_become_pass", "become_password_file",
    "vault_password_file", "vault_id", "state_dir",
)  # fmt: skip
_CLUSTER = ("kubeconfig", "context")
# Options with which others have no meaning: --for names machines, and no node is asked.
_AGAINST = {"captures": {"--save", "--for"}, "limit": {"--for"}}
_NAMED = "INVENTORY"
_START = re.compile(r"(?<![\w/.-])fleetbuild(?= [a-z])")  # not /opt/fleetbuild
_WORD = re.compile(r""" ((?:'[^']*'|[^\s'"`;()])+)""")


class Command(NamedTuple):
    """A command in a sentence: where it stands, and its words after `fleetbuild`."""

    start: int
    end: int
    words: tuple[str, ...]


def commands(text: str) -> Iterator[Command]:
    """Yield the commands in a sentence. One ends at a comma, a full stop, a bracket or a quote."""
    for start in _START.finditer(text):
        end, words = start.end(), list[str]()
        while word := _WORD.match(text, end):
            bare = word[1].rstrip(".,:")
            words.append(bare)
            end = word.start(1) + len(bare)
            if bare != word[1]:
                break
        yield Command(start.start(), end, tuple(words))


class Hints:
    """How a run was started; completes the commands that its messages name."""

    def __init__(self, root: Any = None, values: Mapping[str, Any] | None = None) -> None:
        """`root` is the program's group of commands, `values` are the run's by parameter."""
        self._root = root
        self._values = dict(values or {})
        self._recalled = False

    @classmethod
    def of(cls, context: Any) -> Hints:
        """Return the hints of a command that Typer has parsed."""
        return cls(context.find_root().command, context.params)

    def note(self, **values: Any) -> None:
        """Note what the run found out. The inventory is `inventory`, in every command."""
        self._values |= values

    def recall(self, made: Mapping[str, Any]) -> None:
        """Note what a plan was made with; what this run names comes before.

        A run that asks the nodes knows them as they are: it sends nobody back to captures.
        """
        asked = {"captures"} if "timeout" in self._values else set()
        known = {name for name, value in self._values.items() if value} | asked
        self._values |= {name: value for name, value in made.items() if name not in known}

    def completed(self, text: str) -> str:
        """Return the sentence with complete commands; one at the end has no full stop behind it."""
        if "fleetbuild " not in text or self._root is None:
            return text
        for command in reversed(list(commands(text))):
            words, rest = self._completed(command.words), text[command.end :]
            text = f"{text[: command.start]}fleetbuild {words}{rest if rest != '.' else ''}"
        return text

    def _completed(self, words: tuple[str, ...]) -> str:
        target, rest = self._root, list(words)
        while rest and hasattr(target, "commands") and (below := target.get_command(None, rest[0])):
            target = below
            rest.pop(0)
        if hasattr(target, "commands"):  # a sentence about the program or a group of commands
            return " ".join(words)
        self._recall_last_plan()
        filled = [each for word in words for each in self._filled(target, word)]
        end = filled.index("--") if "--" in filled else len(filled)  # what follows is another's
        return " ".join((*filled[:end], *self._given(target, rest), *filled[end:]))

    def _filled(self, target: Any, word: str) -> list[str]:
        """Return the word; in place of INVENTORY the run's, or none where a command finds it."""
        if word != _NAMED:
            return [word]
        inventory = self._values.get("inventory") or self._values.get("what")
        if inventory and Path(inventory).suffix != ".json":
            name = shlex.quote(inventory)
            return [f"'{name}'" if name.endswith(",") else name]
        # Without a name, plan and apply take this machine; captures are of others.
        own = target.name in ("plan", "apply") and not self._values.get("captures")
        return [] if own else [word]

    def _recall_last_plan(self) -> None:
        """Recall the last plan, unless this run plans itself or names another inventory."""
        if self._recalled or "package" in self._values or "state_dir" not in self._values:
            return
        self._recalled = True
        import fleetbuild

        with suppress(fleetbuild.FleetbuildError):
            plan = fleetbuild.read_plan(Path(self._values["state_dir"]) / "plan.json")
            made: dict[str, Any] = {"config": plan.config, **plan.options}
            limit = self._values.get("limit")
            if not (self._values.get("inventory") or self._values.get("what")):
                from_cluster = plan.facts_source == "cluster"
                inventory = None if from_cluster else plan.inventory
                made |= {"inventory": inventory, "from_cluster": from_cluster, "limit": plan.limit}
                limit = limit or plan.limit
            elif self._values.get("inventory") != plan.inventory:
                return
            if plan.limit and limit != plan.limit:  # a trial elsewhere names no packages for these
                made = {name: made[name] for name in made if name not in _PLANNING[1:]}
            self.recall(made)

    def _given(self, target: Any, words: list[str]) -> Iterator[str]:
        """Yield the run's options that this command takes, and that its words do not have."""
        own = {word.partition("=")[0] for word in words if word.startswith("-")}
        # A saved plan names these itself.
        named = set(_PLANNING) if target.name == "apply" and _NAMED not in words else set()
        if "--package" in own:  # it plans here, as this run's configuration says
            named.discard("config")
        for param in target.params:
            value = self._values.get(param.name)
            if param.name not in _LASTING or own & set(param.opts) or param.opts[0][0] != "-":
                continue
            if value in (None, param.default) or own & _AGAINST.get(param.name, set()):
                continue
            if param.name in named:
                continue
            if param.name in _CLUSTER and not self._asks_cluster(target, own):
                continue
            for each in value if isinstance(value, list | tuple) else [value]:
                yield param.opts[0] if each is True else f"{param.opts[0]} {shlex.quote(str(each))}"

    def _asks_cluster(self, target: Any, own: set[str]) -> bool:
        """Return whether a command asks a cluster; some do only with an option for that."""
        asks = own & {"--apply", "--remove", "--from-cluster"} or self._values.get("from_cluster")
        return bool(asks) or "ask_pass" in (p.name for p in target.params if target.name != "plan")


_of_this_run: ContextVar[Hints] = ContextVar("hints")


@contextmanager
def started(hints: Hints) -> Iterator[None]:
    """Let messages within name commands as this one was started."""
    token = _of_this_run.set(hints)
    try:
        yield
    finally:
        _of_this_run.reset(token)


def of_this_run() -> Hints:
    """Return how the run was started; outside of a command, nothing is completed."""
    return _of_this_run.get(Hints())
