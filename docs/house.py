"""Measure the package: code lines, modules, imports and single-use modules for each room.

    python docs/house.py [REVISION]    print the table, after the table of an earlier one
    python docs/house.py --check       fail if a part is larger than its limit

A code line is a line that is neither blank, nor a comment, nor part of a docstring.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "fleetbuild"
_NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip

# Code lines. A limit falls with what it limits, and rises for no feature: one leaves first.
LIMITS = {"core": 26_892, "extensions": 11_629, "plugins": 5_654, "tests": 51_862}


@dataclass(frozen=True)
class Module:
    """A module of the package, measured."""

    name: str
    room: str
    code_lines: int
    import_lines: int
    imports: frozenset[str]


def measure(package: Path) -> tuple[Module, ...]:
    """Return every module of a package, measured; packages without code are left out."""
    texts = {_name(path, package): path.read_text("utf-8") for path in package.rglob("*.py")}
    measured = (_measure(name, text, package, texts.keys()) for name, text in texts.items())
    return tuple(module for module in measured if module.code_lines)


def _name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _measure(name: str, text: str, package: Path, known: Iterable[str]) -> Module:
    tree = ast.parse(text)
    docstrings = {line for node in ast.walk(tree) for line in _docstring(node)}
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    lines = {i for n in statements for i in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
    parts = name.split(".")
    room = parts[1] if len(parts) > 1 and (package / parts[1]).is_dir() else ""
    imports = frozenset(target for node in statements for target in _targets(node, set(known)))
    return Module(name, room, len(code - docstrings), len(lines), imports - {name})


def _docstring(node: ast.AST) -> range:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if not isinstance(node, kinds) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    first = node.body[0]
    return range(first.lineno, (first.end_lineno or first.lineno) + 1)


def _targets(node: ast.Import | ast.ImportFrom, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif node.module and not node.level:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            target = whole if whole in known else node.module
            if target in known:
                yield target


def rows(modules: Iterable[Module]) -> dict[str, tuple[int, int, int, int]]:
    """Return code lines, modules, percent of import lines and single-use modules for each room."""
    modules = tuple(modules)
    users = Counter(target for module in modules for target in module.imports)
    rooms: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        rooms[f"{module.room}/" if module.room else "single modules"].append(module)
    rooms = {room: rooms[room] for room in sorted(rooms)} | {"in all": list(modules)}
    return {
        room: (
            sum(module.code_lines for module in inside),
            len(inside),
            round(100 * sum(m.import_lines for m in inside) / sum(m.code_lines for m in inside)),
            sum(users[module.name] == 1 for module in inside),
        )
        for room, inside in rooms.items()
    }


def table(now: tuple[Module, ...]) -> str:
    """Return the table of one revision, in Markdown."""
    head = "| room | code lines | modules | import lines | modules with one user |"
    rule = "|---|--:|--:|--:|--:|"
    body = (
        f"| {room} | {code:,} | {count} | {imports} % | {single} |"
        for room, (code, count, imports, single) in rows(now).items()
    )
    return "\n".join((head, rule, *body))


def at_revision(revision: str) -> tuple[Module, ...]:
    """Return the modules of the package as they were in a commit."""
    archive = subprocess.run(
        ["git", "archive", revision, PACKAGE], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
            tree.extractall(folder)  # noqa: S202 (our own archive; Debian 12 knows no filter)
        return measure(Path(folder) / PACKAGE)


def sizes() -> dict[str, int]:
    """Return the code lines of each part that has a limit."""
    rooms = rows(measure(ROOT / PACKAGE))
    extensions, package = rooms["extensions/"][0], rooms["in all"][0]
    others = {name: measure(ROOT / name) for name in ("plugins", "tests")}
    lines = {name: sum(each.code_lines for each in found) for name, found in others.items()}
    return {"core": package - extensions, "extensions": extensions} | lines


def check() -> None:
    """End with an error if a part is larger than its limit."""
    found = sizes()
    print("   " + ", ".join(f"{part} {lines:,}" for part, lines in found.items()))
    for part, lines in found.items():
        if lines > LIMITS[part]:
            sys.exit(
                f"{part} has {lines:,} lines of code, {LIMITS[part]:,} are allowed. Remove what"
                " your change makes unnecessary (CONTRIBUTING.md: No feature without one leaving)."
            )


def main(arguments: list[str]) -> None:
    """Print the table of today, and of the named revision before it."""
    if arguments == ["--check"]:
        check()
        return
    for revision in arguments:
        print(f"{revision}:\n\n{table(at_revision(revision))}\n")
    print(table(measure(ROOT / PACKAGE)))


if __name__ == "__main__":
    main(sys.argv[1:])
