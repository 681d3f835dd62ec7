import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.extensions.kubernetes.manifests.yaml_dump import FlowStyle, Note, dump

# Small ones: what can go wrong goes wrong in a few characters, and large ones take long to draw.
texts = st.text(max_size=20)
scalars = texts | st.integers() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
notes = st.builds(Note, values, texts)


def without_notes(value):
    if isinstance(value, Note):
        return without_notes(value.value)
    if isinstance(value, dict):
        return {key: without_notes(item) for key, item in value.items()}
    return [without_notes(item) for item in value] if isinstance(value, list) else value


@given(values, texts)
def test_another_yaml_reader_reads_the_same_value(value, header):
    assert yaml.safe_load(dump(value, header)) == value


@given(st.dictionaries(texts, notes, max_size=4) | st.lists(notes, max_size=4))
def test_comments_change_nothing(value):
    assert yaml.safe_load(dump(value)) == without_notes(value)


@given(st.lists(values, max_size=4) | st.dictionaries(texts, values, max_size=4))
def test_rows_do_not_change_the_value(value):
    assert yaml.safe_load(dump({"row": FlowStyle(value)})) == {"row": value}
    assert yaml.safe_load(dump([FlowStyle(value), 1])) == [value, 1]


def test_rows_fit_the_page():
    text = dump(
        {"list": FlowStyle([f"item-{n}" for n in range(40)]), "map": FlowStyle({"op": "Exists"})}
    )
    assert 4 < len(text.splitlines()) < 10
    assert max(map(len, text.splitlines())) <= 100
    assert text.endswith("map: {op: Exists}\n")


def test_the_output_is_in_block_style():
    text = dump(
        {
            "name": "a",
            "script": "one\n  two\n\nthree\n",
            "labels": Note({"id": "12e45678", "on": "yes"}, "why"),
            "list": [{"a": 1, "b": [True]}, "x", Note("y", "because"), "block\nhere\n"],
            "none": [],
        },
        "top\n\nof it",
    )
    assert text == (
        "# top\n#\n# of it\nname: a\nscript: |\n  one\n    two\n\n  three\n"
        '# why\nlabels:\n  id: "12e45678"\n  "on": "yes"\n'
        'list:\n  - a: 1\n    b:\n      - true\n  - x\n  # because\n  - "y"\n'
        "  - |\n    block\n    here\nnone: []\n"
    )


@pytest.mark.parametrize("text", ["12e45678", "0x1f", "1_000", "yes", "~", "", "1.0", "2001-01-01"])
def test_ambiguous_scalars_are_quoted(text):
    assert dump({"id": text}) == f'id: "{text}"\n'
