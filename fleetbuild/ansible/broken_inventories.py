"""Find the line of an INI or YAML inventory that Ansible refuses, and say why it does.

In: the file of an inventory that Ansible refused. Out: a `Mistake`, or None if none is found.
Ansible names no line, and its own words quote values. No value of a variable is shown here: it may
be a password. What Ansible reads is never refused here: this is asked only after it refused.
"""

from __future__ import annotations

import codecs
import re
import shlex
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from fleetbuild.text import clean, is_nested_deeply

if TYPE_CHECKING:
    from yaml.nodes import Node

YAML_SUFFIXES = (".yml", ".yaml", ".json")
_MOST = 4 << 20  # bytes; YAML of this size takes 15 s
_SHOWN = 60  # characters of a name
_SECTION = re.compile(r"\[([^:\]\s]+)(?::(\w+))?\]\s*(?:#.*)?")
_SECRET = re.compile(r"pass|secret|token|key|auth|cred|vault|become", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_BOUNDS = re.compile(r"\d{1,18}|[A-Za-z]", re.ASCII)
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_TAGS = ("!vault", "!unsafe", "!vault-encrypted")  # of Ansible
_QUOTE = "Put a value in quotation marks if it begins with a special character or holds ': '."
_TEXT = "Save it as UTF-8, or move it out of the folder of the inventory."
_KEYS = {"host": "hosts", "child": "children", "group": "children", "groups": "children",
         "var": "vars", "variables": "vars"}  # fmt: skip


@dataclass(frozen=True)
class Mistake:
    """A place in an inventory, the fault there, and the fix."""

    line: int
    what: str
    fix: str
    column: int = 0

    def where(self, path: object) -> str:
        """Return the file and the place in it, for the start of a sentence."""
        line = f", line {self.line}" if self.line else ""
        return f"{path}{line}{f', column {self.column}' if self.column else ''}"


def find_mistake(path: Path, reason: str = "", *, variables: bool = False) -> Mistake | None:
    """Return the first mistake of an inventory file, or of one in group_vars or host_vars.

    `reason` is why Ansible refused it. Nothing is said of large or encrypted files.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST)
    except OSError:
        return None
    if len(content) == _MOST or content.startswith(b"$ANSIBLE_VAULT"):
        return None
    if content.startswith(_UTF_16) or b"\0" in content:
        kind = "UTF-16" if content.startswith(_UTF_16) else "binary"
        return Mistake(0, f"the file is {kind}, not UTF-8 text.", _TEXT)
    lines = content.decode("utf-8", "replace").splitlines()
    if variables or is_yaml(path, lines):
        return _yaml_mistake(content, _variable_mistakes if variables else _document_mistakes)
    if content.startswith(codecs.BOM_UTF8):
        what = "the file begins with a byte order mark, which Ansible reads as part of a name."
        return Mistake(1, what, "Save it as UTF-8 without a byte order mark (BOM).")
    return _ini_mistake(lines, reason)


def is_yaml(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file is YAML by its name or, without an ending, by its first line."""
    if path.suffix:
        return path.suffix in YAML_SUFFIXES
    first = next((line for line in lines if line.strip() and line[0] not in "#;"), "")
    return bool(re.fullmatch(r"---.*|[\w.-]+:\s*(#.*)?", first))


# --- INI: the rules of ansible/plugins/inventory/ini.py ---


def _ini_mistake(lines: Sequence[str], reason: str) -> Mistake | None:
    section, state = "ungrouped", "hosts"
    declared, named = {"all", "ungrouped"}, dict[str, tuple[int, str]]()
    children: dict[str, set[str]] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line[0] in ";#":
            continue
        if mistake := _ini_line_mistake(number, line, state):
            return mistake
        if header := _SECTION.fullmatch(line):
            section, state = header[1], header[2] or "hosts"
            if state == "vars":
                named.setdefault(_safe(section), (number, f"[{_shown(section)}:vars]"))
            else:
                declared.add(_safe(section))
        elif state == "children":
            child = line.partition("#")[0].strip()
            named.setdefault(_safe(child), (number, f"[{_shown(section)}:children]"))
            children.setdefault(section, set()).add(child)
            if "loop" in reason and _leads(children, child, section):
                what = f"{_shown(child)} is a child of {_shown(section)}, and the other way round."
                return Mistake(number, what, "A group cannot be in itself: remove one of the two.")
    return _undeclared(named, declared) if "undefined" in reason else None


def _undeclared(named: dict[str, tuple[int, str]], declared: set[str]) -> Mistake | None:
    for group, (number, where) in named.items():
        if group not in declared:
            what = f"{where} names the group {_shown(group)}, which no section declares."
            fix = f"Correct the name, or add a section [{_shown(group)}] with its hosts."
            return Mistake(number, what, fix)
    return None


def _ini_line_mistake(number: int, line: str, state: str) -> Mistake | None:
    if line.startswith("[") and (mistake := _header_mistake(number, line)):
        return mistake
    if _SECTION.fullmatch(line):
        return None
    if state == "hosts":
        return _host_mistake(number, line)
    if state == "vars" and "=" not in line:
        name = re.match(r"(?:ansible|fleetbuild)_\w+|[A-Za-z_]\w*(?=\s*:)", line, re.ASCII)
        what = f"{_shown(name[0]) if name else 'this line'} has no '=' behind its name."
        fix = "Write each variable as NAME=VALUE, on one line of its own."
        return Mistake(number, what, fix)
    if state == "children" and not re.fullmatch(r"[^:\]\s=]+\s*(?:#.*)?", line):
        what = f"{_first_word(line)!r} … is not the name of a group alone."
        fix = "A [GROUP:children] section has one group per line. Variables go into [GROUP:vars]."
        return Mistake(number, what, fix)
    return None


def _header_mistake(number: int, line: str) -> Mistake | None:
    if header := _SECTION.fullmatch(line):
        if header[2] in (None, "hosts", "children", "vars"):
            return None
        what = f"[{_shown(header[1])}:{_shown(header[2])}] is not a kind of section."
        fix = "A section is [GROUP] for hosts, [GROUP:vars] or [GROUP:children]."
        return Mistake(number, what, fix)
    shown = re.match(r"\[[\w.: -]{0,60}\]?", line)
    name = shown[0] if shown else "["
    fix = "Write the section alone on its line: [GROUP], [GROUP:vars] or [GROUP:children]."
    if "]" not in line:
        return Mistake(number, f"the section {name} lacks its closing bracket.", fix)
    if line.endswith("]"):
        what = f"{name} is not a section: a group's name has no spaces, and is not empty."
        return Mistake(number, what, fix)
    if re.match(r"\[[^\]]*\]\s", line):
        return Mistake(number, f"more text follows the section {name}.", fix)
    return None  # such as the range [1:3].example.com


def _host_mistake(number: int, line: str) -> Mistake | None:
    try:
        first, *words = shlex.split(line, comments=True) or [""]
    except ValueError:
        what = f"the quotation mark in the line of {_first_word(line)} is not closed."
        fix = "Close it, or put a value that holds a quotation mark or \\ between other marks."
        return Mistake(number, what, fix)
    if "=" in first:
        what = f"{_shown(first.partition('=')[0])}=… is a variable where a host should be."
        return Mistake(
            number, what,
            "Put it behind the name of a host, or into a section [GROUP:vars].",
        )  # fmt: skip
    if why := _pattern_mistake(first):
        return Mistake(number, f"{_shown(first)} {why}.", "Correct the name of the host.")
    for at, word in enumerate(words):
        if "=" not in word:
            return Mistake(number, *_word_mistake(first, words[:at], word))
    return None


def _word_mistake(host: str, before: Sequence[str], word: str) -> tuple[str, str]:
    """Return the fault of a line in which a word has no "=", and the fix."""
    if not before:
        # Of a variable without "=", the word is the value.
        shown = "a word" if _SECRET.search(host) else repr(_shown(word))
        what = f"{shown} behind the host {_shown(host)} is not of the form NAME=VALUE."
        fix = "Write one host per line, and no space beside '='."
        return what, fix
    # The word may be the rest of a password with a space.
    names = [name.partition("=")[0] for name in before]
    known = [name for name in names if _NAME.fullmatch(name)]
    secret = next((at for at, name in enumerate(known) if _SECRET.search(name)), len(known))
    line = " ".join([_shown(host), *(f"{_shown(name)}=…" for name in known[: secret + 1])])
    what = f"{line} and then a word that is not of the form NAME=VALUE."
    return what, "Put a value with spaces in quotation marks, and no space beside '='."


def _pattern_mistake(name: str) -> str:
    """Return the fault of the name of a host, or of its ranges, else ""."""
    if bracketed := re.fullmatch(r"\[(.+)\](?::\d+)?", name):
        name = "" if ":" in bracketed[1] and bracketed[1].count(":") != 1 else name
    name = re.sub(r"^((?:[^:\[\]]|\[[^\]]*\])*):\d+$", r"\1", name)  # not of an IPv6 address
    if name.endswith(":"):
        return (
            "ends in a colon: a file in YAML has a name that ends in .yml, and a port is a number"
        )
    while "[" in name:
        parts = re.fullmatch(r"[^\[\]|]*\[([^\]|]*)\]([^|]*)", name)
        if not parts:
            return "has a range without its closing bracket"
        if why := _range_mistake(parts[1].split(":")):
            return why
        name = parts[2]
    return ""


def _range_mistake(bounds: Sequence[str]) -> str:
    if len(bounds) not in (2, 3) or not bounds[1]:
        return "has a range that is not [FIRST:LAST] or [FIRST:LAST:STEP]"
    first, last, step = bounds[0] or "0", bounds[1], (*bounds, "1")[2]
    letters = [first, last] if len(first) == len(last) == 1 else []
    if not all(map(_BOUNDS.fullmatch, (first, last))) or first.isdigit() != last.isdigit():
        return "has a range that is neither of numbers nor of single letters"
    if not re.fullmatch(r"0*[1-9]\d{0,17}", step, re.ASCII):
        return "has a range whose step is not a number from 1 on"
    if first.isdigit() and first[0] == "0" and len(first) > 1 and len(first) != len(last):
        return "has a range with leading zeros whose two numbers differ in length"
    places = [*map(string.ascii_letters.find, letters)] if not first.isdigit() else []
    begin, end = places or (int(first), int(last))
    return "has a range that begins after its end" if begin > end else ""


def _leads(children: dict[str, set[str]], start: str, end: str) -> bool:
    seen, waiting = set[str](), [start]
    while waiting:
        group = waiting.pop()
        if group == end:
            return True
        if group not in seen:
            seen.add(group)
            waiting += children.get(group, ())
    return False


def _safe(group: str) -> str:
    return re.sub(r"\W", "_", group)  # as Ansible names groups


def _first_word(line: str) -> str:
    """Return the first word, without what may be a value."""
    word = line.split(maxsplit=1)[0]
    return _shown(re.split(r"[=\"']", word)[0]) or "this line"


def _shown(text: str) -> str:
    return clean(text, limit=_SHOWN)


# --- YAML: the rules of ansible/plugins/inventory/yaml.py ---


def _yaml_mistake(
    content: bytes, mistakes_of: Callable[[Node], Iterator[Mistake]]
) -> Mistake | None:
    import yaml  # noqa: PLC0415 (only where something is wrong)

    nested = Mistake(0, "it is nested too deeply.", "Nest less.")
    try:
        text = content.decode("utf-8")
        if is_nested_deeply(text):
            return nested
        root = yaml.compose(text, yaml.SafeLoader)
    except RecursionError:
        return nested
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        return _syntax_mistake(*at, error.problem or error.context or "it cannot be parsed")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0]
        return Mistake(0, f"not YAML: {why}", "It must be a UTF-8 text file.")
    if root is None:
        return None
    return next(chain(_tag_mistakes(root), mistakes_of(root)), None)


def _syntax_mistake(line: int, column: int, problem: str) -> Mistake:
    fix = "Correct that line, or the one before it."
    if "alias" in problem or "anchor" in problem or "tag" in problem:
        # The rest of such a word may be a password.
        problem, fix = "a value begins with one of * & !", _QUOTE
    elif "\\t" in problem:
        fix = "Indent by spaces, not by tabs."
    elif "cannot start any token" in problem or "mapping values" in problem:
        fix = f"Correct the indentation. {_QUOTE}"
    return Mistake(line, f"not YAML: {clean(problem, limit=200)}", fix, column)


def _variable_mistakes(root: Node) -> Iterator[Mistake]:
    """Yield the mistake of a file in group_vars or host_vars."""
    if _kind(root) not in ("empty", "a mapping"):
        yield _at(root, f"the file holds {_kind(root)}, not variables.", "Write NAME: VALUE.")


def _document_mistakes(root: Node) -> Iterator[Mistake]:
    seen = set[int]()  # an anchor can lead to itself, or to many
    for key, value in root.value if _kind(root) == "a mapping" else ():
        name = _text(key)
        if name == "plugin":
            plugin = _text(value) or "NAME"
            what = f"the file configures the inventory plugin {plugin}, and Ansible did not run it."
            fix = (
                "Check that the plugin is installed, and that the file's name ends as the plugin "
                "wants it (`ansible-doc -t inventory " + plugin + "`)."
            )
            yield _at(key, what, fix)
        elif name in ("hosts", "vars", "children"):
            yield _at(
                key, f"{name}: stands in no group.", f"Put it below a group: all: {{{name}: …}}"
            )
        else:
            yield from _member_mistakes("children", key, value, seen)


def _group_mistakes(name: str, key: Node, group: Node, seen: set[int]) -> Iterator[Mistake]:
    if _kind(group) == "empty" or id(group) in seen:
        return
    seen.add(id(group))
    if _kind(group) != "a mapping":
        what = f"the group {name} is {_kind(group)}."
        yield _at(key, what, "Below a group stand hosts:, children: or vars:.")
        return
    for part, content in group.value:
        section = _text(part)
        if section not in ("hosts", "children", "vars"):
            yield _at(part, *_unexpected(section, name, content))
        elif _kind(content) == "a list":
            what = f"{section}: of the group {name} is a list."
            fix = f"Write each one as a key, without '-': {section}: {{NAME: {{}}}}"
            yield _at(part, what, fix)
        elif _kind(content) == "a mapping":
            for inner, value in content.value:
                yield from _member_mistakes(section, inner, value, seen)
        elif _kind(content) not in ("empty", "a text"):
            yield _at(part, f"{section}: of the group {name} is {_kind(content)}.", "Write names.")


def _member_mistakes(section: str, key: Node, value: Node, seen: set[int]) -> Iterator[Mistake]:
    name, what = _text(key), "host" if section == "hosts" else "group"
    if _kind(key) in ("a list", "a mapping"):
        yield _at(key, f"a name below {section}: is {_kind(key)}.", _QUOTE)
    elif section == "vars":
        return
    elif key.tag != "tag:yaml.org,2002:str":
        yield _at(key, f"the {what} {name} is not a text.", f'Put it in quotation marks: "{name}"')
    elif section == "hosts":
        yield from _host_mistakes(name, key, value)
    else:
        yield from _group_mistakes(name, key, value, seen)


def _unexpected(section: str, group: str, content: Node) -> tuple[str, str]:
    meant = _KEYS.get(section)
    what = f"{section or 'a key'}: is not expected directly below the group {group}."
    if meant:
        return what, f"Write {meant}: in its place."
    where = "vars:" if _kind(content) not in ("empty", "a mapping") else "hosts: or children:"
    return what, f"Put it below {where} of this group."


def _host_mistakes(name: str, key: Node, variables: Node) -> Iterator[Mistake]:
    if why := _pattern_mistake(key.value):
        yield _at(key, f"{name} {why}.", "Correct the name of the host.")
    if _kind(variables) not in ("empty", "a mapping"):
        what = f"the host {name} has {_kind(variables)} where its variables should be."
        yield _at(
            key, what, f"Write its variables as keys below it: {name}: {{ansible_host: ADDRESS}}"
        )


def _tag_mistakes(root: Node) -> Iterator[Mistake]:
    """Yield a mistake for each value that begins with "!", of which YAML makes a tag."""
    nodes, seen = [root], {id(root)}
    for node in nodes:
        if node.tag.startswith("!") and node.tag not in _TAGS:
            yield _at(node, "a value begins with '!'.", _QUOTE)
        for item in () if isinstance(node.value, str) else node.value:
            inner = item if isinstance(item, tuple) else (item,)
            nodes += (each for each in inner if id(each) not in seen)
            seen.update(map(id, inner))


def _text(node: Node) -> str:
    """Return a key or a name as it is shown; "" for a list or a mapping, which hold values."""
    return _shown(node.value) if isinstance(node.value, str) else ""


def _kind(node: Node) -> str:
    if isinstance(node.value, str):
        return "empty" if node.tag == "tag:yaml.org,2002:null" else "a text"
    return (
        "a mapping"
        if all(isinstance(item, tuple) for item in node.value)
        and (node.tag == "tag:yaml.org,2002:map")
        else "a list"
    )


def _at(node: Node, what: str, fix: str) -> Mistake:
    mark = node.start_mark
    return Mistake(mark.line + 1 if mark else 0, what, fix)


def without_values(reason: str) -> str:
    """Return Ansible's own reason without what it quotes of the file: that may be a password."""
    reason = re.sub(r"(Error parsing host definition) .*: ", r"\1: ", reason)
    return re.sub(
        r"(\bgot:|the tag|with base \d+:|to float:|line appears to be:) .*", r"\1 …", reason
    )
