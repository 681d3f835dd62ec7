"""The forms that the rules of wording exclude become fewer, and never more."""

from collections import Counter
from pathlib import Path

import pytest

from tests import wording


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
        'def test_to_whom_it_goes() -> None:\n    """Its fate."""\n'
    )
    (tmp_path / "README.md").write_text("It is no page.\nIt is no longer one.\n")
    counts = Counter(hit.form for hit in wording.hits(tmp_path))
    assert counts == {"fate": 1, "whom": 2, "is none": 1, "is no NOUN": 1}
