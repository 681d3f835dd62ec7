"""Text that people wrote stays what it was, but for what was put into it."""

import difflib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.kubernetes.yaml_edit.dump import block
from fleetbuild.kubernetes.yaml_edit.insert import CannotEditError, put
from fleetbuild.kubernetes.yaml_edit.parse import read


def changed(before, after):
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "+-"]


def test_a_new_entry_is_added_at_the_end_of_its_mapping():
    text = "a:\n    b:   1   # one\n    # c: 2\n\n# about d\nd: |\n  x\n\n"
    after = put(text, 0, ("a", "e"), "12e4", "why")
    assert after == (
        'a:\n    b:   1   # one\n    # c: 2\n    # why\n    e: "12e4"\n\n# about d\nd: |\n  x\n\n'
    )


def test_lists_keep_their_indentation_and_flow_stays_flow():
    text = "a:\n- x\nb:\n    -   y\nc: [ ]\nd: { k: [1, 2 ] }\n"
    after = put(put(text, 0, ("a", 1), "z"), 0, ("b", 1), {"i": "z", "m": [1]})
    after = put(put(after, 0, ("c", 0), "z"), 0, ("d", "k", 2), "z")
    after = put(after, 0, ("d", "l"), {"m": "o"})
    assert after == (
        "a:\n- x\n- z\nb:\n    -   y\n    - i: z\n      m:\n        - 1\n"
        "c: [z]\nd: { k: [1, 2, z ], l: {m: o} }\n"
    )


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("a:\n", "a:\n  b: c\n"),
        ("a:   # nothing yet\n", "a:   # nothing yet\n  b: c\n"),
        ("a: ~\n", "a: {b: c}\n"),
        ("a: {}\n", "a: {b: c}\n"),
        ("{a: }", "{a: {b: c} }"),
        ("a: {x: 1}", "a: {x: 1, b: c}"),
        ("a: {x: 1,}", "a: {x: 1, b: c,}"),
        ("a:\n  x: 1", "a:\n  x: 1\n  b: c"),
        ("a:\r\n  x: 1\r\n", "a:\r\n  x: 1\r\n  b: c\r\n"),
        ("z: 1\n", "z: 1\na:\n  b: c\n"),
        ("a:\n  x: |+\n    1\n\nd: 1\n", "a:\n  x: |+\n    1\n\n  b: c\nd: 1\n"),
        ("a:\n  x: >-\n    1\n\nd: 1\n", "a:\n  x: >-\n    1\n  b: c\n\nd: 1\n"),
        ("a: # c\n  x: 'é '\n...\n", "a: # c\n  x: 'é '\n  b: c\n...\n"),
    ],
)
def test_an_entry_is_inserted_at_the_right_place(text, after):
    assert put(text, 0, ("a", "b"), "c") == after


@pytest.mark.parametrize(
    ("written", "after"),
    [
        ("web", "it-is"),
        ("'web'", "'it-is'"),
        ('"web"', '"it-is"'),
        ("&n web", "&n it-is"),
        ("!!str 'web'", "!!str 'it-is'"),
    ],
)
def test_a_replaced_scalar_keeps_its_quotes(written, after):
    text = f"name:  {written}   # the name\n"
    assert put(text, 0, ("name",), "it-is") == f"name:  {after}   # the name\n"
    (document,) = read(put(text, 0, ("name",), 'it\'s "1"'))
    assert document == {"name": 'it\'s "1"'}


ALIASED = """\
metadata:
  labels: &labels
    app: web   # everywhere
selector: *labels   # the same
template:
  labels: *labels
"""


def test_a_changed_alias_is_replaced_by_a_copy():
    after = put(ALIASED, 0, ("selector", "group"), "g")
    assert changed(ALIASED, after) == [
        "- selector: *labels   # the same",
        "+ selector:   # the same",
        "+   app: web",
        "+   group: g",
    ]


def test_a_change_at_an_anchor_does_not_change_its_aliases():
    after = put(ALIASED, 0, ("metadata", "labels", "group"), "g")
    (document,) = read(after)
    assert document["metadata"]["labels"] == {"app": "web", "group": "g"}
    assert document["selector"] == document["template"]["labels"] == {"app": "web"}
    assert "    app: web   # everywhere\n    group: g\n" in after


def test_an_alias_of_a_scalar_is_replaced_and_its_anchor_is_not():
    text = "a: &a x\nb: *a  # the same\nc: *a\n"
    assert put(text, 0, ("b",), "y-1") == "a: &a x\nb: y-1  # the same\nc: *a\n"
    assert put(text, 0, ("a",), "y-1") == "a: &a y-1\nb: x  # the same\nc: x\n"


def test_merged_keys_are_kept():
    text = "base: &base\n  env: [{name: A, value: 1}]\n  image: x\nmain:\n  <<: *base\n  name: m\n"
    after = put(text, 0, ("main", "env", 1), {"name": "B"})
    (document,) = read(after)
    assert document["base"]["env"] == [{"name": "A", "value": "1"}]
    assert document["main"]["env"] == [{"name": "A", "value": "1"}, {"name": "B"}]
    assert document["main"]["image"] == "x"
    assert [line[0] for line in changed(text, after)] == ["+"] * 4
    assert yaml.safe_load(after)["main"]["env"][0]["value"] == 1  # a number stays one


def test_aliases_in_flow_and_in_lists_are_copied():
    text = "a: &a {x: z}\nb: {c: *a}\nd:\n  - *a\n"
    after = put(put(text, 0, ("b", "c", "m"), "1"), 0, ("d", 0, "m"), "1")
    assert after == 'a: &a {x: z}\nb: {c: {x: z, m: "1"}}\nd:\n  - {x: z, m: "1"}\n'


def test_other_documents_stay_unchanged():
    text = "%YAML 1.1\n---\n# first\na: 1\n---\nb: {c: 2}  # second\n--- \nd: 3\n"
    assert changed(text, put(text, 1, ("b", "e"), "f")) == [
        "- b: {c: 2}  # second", "+ b: {c: 2, e: f}  # second",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a: {b: 1}\n", ("a",)),  # a mapping is not replaced
        ("a: 1\n", ("a", "b")),
        ("a:\n  x: |\n    no newline at the end", ("a", "b")),
    ],
)
def test_a_change_with_side_effects_is_refused(text, path):
    with pytest.raises(CannotEditError):
        put(text, 0, path, "c")


def test_a_merge_of_something_else_than_a_mapping_is_invalid():
    with pytest.raises(yaml.YAMLError):
        read("a:\n  <<: 3\n")


names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=4)
leaves = names | st.integers() | st.booleans() | st.none() | st.sampled_from(["on", "a\nb\n", ""])
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=12,
)


def paths(value, path=()):
    """Every place where an entry could be added."""
    if isinstance(value, dict):
        yield (*path, "new-key")
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, list):
        yield (*path, len(value))
        for index, item in enumerate(value):
            yield from paths(item, (*path, index))


@given(
    st.dictionaries(names, trees, min_size=1, max_size=3),
    st.sampled_from(["ours", "block", "flow", "json", "wide"]),
    st.sampled_from([{"k": ["v", 1]}, "v", ["a", {"b": "c"}]]),
    st.data(),
)
def test_any_value_can_be_put_into_any_style_of_yaml(tree, style, value, data):
    path = data.draw(st.sampled_from(list(paths(tree))))
    text = {
        "ours": lambda: "\n".join(block(tree)) + "\n",
        "block": lambda: yaml.safe_dump(tree),
        "flow": lambda: yaml.safe_dump(tree, default_flow_style=True),
        "json": lambda: json.dumps(tree),
        "wide": lambda: yaml.safe_dump(tree, indent=6, sort_keys=False),
    }[style]()
    before = yaml.safe_load(text)
    after = yaml.safe_load(put(text, 0, path, value))
    place = before
    for step in path[:-1]:
        place = place[step]
    if isinstance(place, list):
        place.append(value)
    else:
        place[path[-1]] = value
    assert after == before
