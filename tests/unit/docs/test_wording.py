"""The forms that the rules of wording exclude become fewer, and never more."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetbuild import errors
from tests import wording

ERRORS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.FleetbuildError)
}


@pytest.fixture(scope="module")
def found() -> list[wording.Hit]:
    return list(wording.hits())


@pytest.mark.parametrize("form", wording.FORMS)
def test_no_form_occurs_more_often_than_recorded(form: str, found: list[wording.Hit]) -> None:
    places = [f"{hit.place}: {hit.text}" for hit in found if hit.form == form]
    assert len(places) <= wording.recorded()[form], "\n".join(
        [f"{form!r} occurs {len(places)} times. Reword the new one of these:", *places]
    )


def test_only_texts_are_read_and_not_code(tmp_path: Path) -> None:
    (tmp_path / "fleetbuild").mkdir()
    (tmp_path / "fleetbuild" / "one.py").write_text(
        '"""Its fate."""\nfates = fate = 1  # nobody to whom\nraise ValueError(f"{it} is none")\n'
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text(
        'def test_to_whom_it_goes() -> None:\n    """Its fate."""\n    fate = whom = 1\n'
    )
    (tmp_path / "tests" / "unit" / "data").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "data" / "recorded.yml").write_text("mend: it\n")
    (tmp_path / "Makefile").write_text("all: # mend it\n")
    (tmp_path / "README.md").write_text("It is no page.\nIt is no longer one.\n")
    counts = Counter(hit.form for hit in wording.hits(tmp_path))
    assert counts == {"fate": 2, "whom": 2, "is none": 1, "is no NOUN": 1, "mend": 1}


def texts_of_errors() -> Iterator[tuple[str, str, bool]]:
    """Yield place and text of each error's message and fix, {} for values; last: whether a fix."""
    for path in sorted((wording.ROOT / "fleetbuild").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
                for number, argument in enumerate(node.args[:2]):
                    if text := text_of(argument):
                        yield (
                            f"{path.relative_to(wording.ROOT)}:{argument.lineno}",
                            text,
                            number > 0,
                        )


def text_of(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    if isinstance(node, ast.BinOp):
        return text_of(node.left) + text_of(node.right)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "{}"


def is_name(word: str) -> bool:
    """Whether a sentence may begin with this: a key, a variable, a file, a program."""
    return any(mark in word for mark in "._-:") or word == "fleetbuild"


def test_errors_are_sentences() -> None:
    wrong = [
        f"{place}: {text}"
        for place, text, fix in texts_of_errors()
        if (text[0].islower() and not is_name(text.split()[0]))
        or not (fix or text.endswith((".", "?", "{}")))
    ]
    assert wrong == []
