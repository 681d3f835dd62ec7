"""What a node may answer: a schema for the reply of each module that the roles use.

In: the module, its arguments, and the reply of a node. Out: the reply with the fields of the schema
alone, each within its bounds, or `Refused`. Runs on the controller, in each of Ansible's workers;
so it needs no library whose import takes longer than the task.
"""

import math
import re

TEXT, SHORT, MANY = 4000, 600, 1000
_PATH = re.compile(r"(/[A-Za-z0-9_.@+-]+)*/?")


class Refused(ValueError):
    """A value is not what its field may hold; the text names the field."""


def text(longest):
    """Text of a node, for people: without control characters, the end of it if it is too long."""

    def check(value):
        if not isinstance(value, str):
            raise ValueError
        return "".join(c for c in value[-longest:] if c.isprintable() or c in "\n\t")

    return check


def matching(pattern, longest=SHORT):
    """Text that has this form as a whole."""
    form = re.compile(pattern)

    def check(value):
        if not isinstance(value, str) or len(value) > longest or not form.fullmatch(value):
            raise ValueError
        return value

    return check


def one_of(*names):
    """One of these names."""
    return matching("|".join(map(re.escape, names)))


def number(least, most):
    """A finite number in a range."""

    def check(value):
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not math.isfinite(value) or not least <= value <= most:
            raise ValueError
        return value

    return check


def whole(least, most):
    """A whole number in a range."""
    within = number(least, most)

    def check(value):
        if not isinstance(value, int):
            raise ValueError
        return within(value)

    return check


def flag(value):
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError
    return value


def begun(value):
    """A flag of Ansible's own, which is 0 or 1 before ansible-core 2.19."""
    return flag(value) if isinstance(value, bool) else whole(0, 1)(value)


def path(value):
    """An absolute path of plain names, none of them .. or an option."""
    if not isinstance(value, str) or len(value) > SHORT or not _PATH.fullmatch(value):
        raise ValueError
    if any(name.startswith("-") or name in (".", "..") for name in value.split("/")):
        raise ValueError
    return value


def optional(rule):
    """A value that may be null."""
    return lambda value: None if value is None else rule(value)


def each(rule, most=MANY):
    """A list with a bounded number of values."""

    def check(values):
        if not isinstance(values, list) or len(values) > most:
            raise ValueError
        return [rule(value) for value in values]

    return check


def mapping(key, rule, most=MANY):
    """A dictionary with a bounded number of values."""

    def check(values):
        if not isinstance(values, dict) or len(values) > most:
            raise ValueError
        return {key(name): rule(value) for name, value in values.items()}

    return check


def record(**fields):
    """A dictionary of these fields; others are dropped."""

    def check(values):
        if not isinstance(values, dict):
            raise ValueError
        return {name: rule(values[name]) for name, rule in fields.items() if name in values}

    return check


def advice(value):
    """The id of a sentence of advice.py and its values.

    A module of an older version answers with a sentence, which has no id.
    """
    if isinstance(value, str):
        return []
    return each(
        lambda word: text(SHORT)(word) if isinstance(word, str) else whole(0, 10**6)(word), 5
    )(value)


COUNT, SECONDS = whole(0, 10**9), number(0, 10**9)
SHA256 = matching(r"([0-9a-f]{64})?")
RELEASE = matching(r"([A-Za-z0-9][A-Za-z0-9._-]{0,100})?")
# A damaged release stands aside under such a name while it is made again.
ASIDE = matching(r"(\.broken-)?[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
NAME = matching(r"[A-Za-z0-9][A-Za-z0-9+._=>~-]{0,100}")
PACKAGE = matching(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+!-]*", 200)
_ANY = {
    "changed": flag, "failed": flag, "skipped": flag, "rc": whole(-255, 255), "msg": text(TEXT),
    "module_stdout": text(TEXT), "module_stderr": text(TEXT),
    # Ansible adds it where it looks for a Python, and removes a module's own.
    "ansible_facts": mapping(one_of("discovered_interpreter_python"), path),
}  # fmt: skip
_FIX = {"fix": advice}  # only what advice.py knows goes on
SCHEMAS = {
    "build": {
        "state": one_of("absent", "running", "failed", "done"),
        "file": matching(r"([A-Za-z0-9_][A-Za-z0-9_.+!-]{0,250}[.]whl)?"),
        "sha256": SHA256,
        "home": path,
        "isolation": one_of("", "container", "namespaces", "user", "none"),
        "container": text(SHORT),
        "seconds": SECONDS,
        "reason": text(TEXT),
        "kind": one_of("", "machine", "code", "input"),
        "errors": each(text(SHORT), 20),
        "progress": record(
            done=optional(COUNT), total=optional(COUNT), steps=optional(COUNT),
            seconds=optional(SECONDS), last_line=text(2000),
        ),
        "attached": flag,
        "missing": each(SHA256),
        **_FIX,
    },
    "release": {
        "counter": whole(0, 10**15),
        "took_over": text(SHORT),
        "root": text(SHORT),  # is only compared
        "incoming": path,
        "complete": flag,
        "verified": flag,
        "writable": flag,
        "user": whole(0, 2**32),
        "for_login": flag,
        "serving": RELEASE,
        "there": flag,
        "missing": each(record(sha256=SHA256), 10_000),
        "release_id": RELEASE,
        "ok": flag,
        "active": flag,
        "made_by": one_of("", "uv", "pip", "venv", "manifest"),
        "verification": record(
            ok=flag, release_id=RELEASE, damaged=flag, reason=text(TEXT), fix=advice,
            output=text(20_000),
        ),
        "previous": RELEASE,
        "packages": each(PACKAGE),
        "pruned": each(ASIDE),
        "kept": each(record(release_id=ASIDE, reason=text(SHORT))),
        **_FIX,
    },
    "verify": {
        "ok": flag, "present": flag, "marked": flag, "writable": flag, "damaged": flag,
        "release_id": RELEASE, "reason": text(TEXT), "output": text(20_000), **_FIX,
    },
    "toolchain": {
        "found": mapping(NAME, matching(r"[A-Za-z0-9._+-]{0,60}"), 200),
        "needed": each(NAME, 200), "optional": each(NAME, 200), "unknown": each(NAME, 200),
        "installed": each(NAME, 200), "notes": each(text(SHORT), 20), "root": flag,
        "command": matching("[a-z][A-Za-z0-9 +._-]*", TEXT),  # see advice.check_packages
    },
    "async_wrapper": {
        "failed": begun, "started": begun, "finished": begun,
        "ansible_job_id": matching(r"j?[0-9]{1,20}([.][0-9]{1,20})?"),
    },
}  # fmt: skip


def checked(module, reply):
    """Return a reply with the fields of its module's schema, or raise `Refused`."""
    fields = {**_ANY, **SCHEMAS[module]}
    kept = {}
    for name, rule in fields.items():
        if name not in reply:
            continue
        try:
            kept[name] = rule(reply[name])
        except (ValueError, TypeError, OverflowError):
            raise Refused(name) from None
    return kept
