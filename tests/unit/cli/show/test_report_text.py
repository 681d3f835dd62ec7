import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetbuild.cli.show.text import duration, size, with_short_symbols
from fleetbuild.text import age, clean, count, fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["login"], "login"),
        (["gpu-07"], "gpu-07"),
        (["gpu-07", "gpu-08", "gpu-09", "gpu-12", "login"], "gpu-[07-09,12], login"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n1.lab", "n2.lab", "n4.lab"], "n[1-2,4].lab"),
        (["node-7", "node-07"], "node-07, node-7"),
        (["e5v2-a", "e5v2-b"], "e5v2-a, e5v2-b"),
        (["a\x1b[31m1"], "a1"),
        (["a1", "a72"], "a[1,72]"),
        (["a1", "a01", "a72"], "a1, a[01,72]"),
        ([f"a{n}.k8s.lab" for n in range(1, 73)], "a[1-72].k8s.lab"),
        (
            ["ip-10-0-1-7.ec2.internal", "ip-10-0-2-8.ec2.internal"],
            "ip-10-0-1-7.ec2.internal, ip-10-0-2-8.ec2.internal",
        ),
        (["rack1-node1", "rack2-node1"], "rack[1-2]-node1"),
        ([f"r{r}-n{n}" for r in (1, 2) for n in (1, 2, 3)], "r1-n[1-3], r2-n[1-3]"),
    ],
)
def test_names_fold_as_clusters_write_them(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@given(st.lists(st.integers(0, 400), unique=True, min_size=1))
def test_folding_loses_no_node(numbers: list[int]) -> None:
    folded = fold((f"gpu-{number:03d}" for number in numbers), limit=None)
    inner = folded.removeprefix("gpu-").strip("[]")
    found: set[int] = set()
    for part in inner.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == set(numbers)


def test_long_lists_are_cut_and_the_rest_counted() -> None:
    odd = [f"n{number}" for number in range(1, 4001, 2)]
    folded = fold(odd, limit=40)
    assert folded.startswith("n[1,3,5,7,9,11,")
    assert len(folded) < 60
    shown, more = folded.split(" and ")
    assert more == f"{2000 - len(shown.split(','))} more"
    assert fold(["a" * 500, "b"]) == f"{'a' * 500} and 1 more"


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07seen", "seen"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\nb\tc\rd", "a b c d"),
        ("left\u202eright", "leftright"),
        ("nul\x00bell\x07del\x7f\x9b31m", "nulbelldel31m"),
        ("[red]not markup[/red]", "[red]not markup[/red]"),
        ("Grüße", "Grüße"),
        ("a ##[stop-commands]b", "a # #[stop-commands]b"),  # GitHub's runner would obey
    ],
)
def test_text_from_nodes_has_no_control_characters(hostile: str, harmless: str) -> None:
    assert clean(hostile) == harmless


@given(st.text())
def test_clean_text_is_printable_and_stays_unchanged(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert "\x1b" not in cleaned
    assert all(char.isprintable() or char.isspace() or ord(char) > 0x7F for char in cleaned)


def test_long_text_is_cut() -> None:
    assert clean("x" * 50_000_000, limit=10) == "x" * 9 + "…"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0.0 s"), (1.6, "1.6 s"), (42, "42 s"), (59.7, "1 min 00"), (125, "2 min 05"),
     (6600, "1 h 50")],
)  # fmt: skip
def test_durations_are_readable(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_counts_ages_and_sizes_are_readable() -> None:
    assert [count(1, "node"), count(3, "day")] == ["1 node", "3 days"]
    assert [age(3), age(125), age(7200), age(90000)] == [
        "just now", "2 minutes ago", "2 hours ago", "1 day ago",
    ]  # fmt: skip
    assert [size(812), size(4100), size(1.2e9)] == ["812 B", "4.1 kB", "1.2 GB"]


@pytest.mark.parametrize(
    ("length", "shown"), [(60, "s" * 60), (61, "s" * 59 + "…"), (900, "s" * 59 + "…")]
)
def test_only_long_symbols_are_cut(length, shown):
    text = f"a.so uses avx2 in `{'s' * length}`, bmi2 in `kernel` (a reason)"
    expected = f"a.so uses avx2 in `{shown}`, bmi2 in `kernel` (a reason)"
    assert with_short_symbols(text) == expected
