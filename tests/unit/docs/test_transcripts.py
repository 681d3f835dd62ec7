"""Pages show what the program prints: every transcript runs, and a changed sentence is found."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
docs = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "transcripts.py")))
TRANSCRIPTS = docs.transcripts()
SHOWN = {
    found["name"]: found["text"]
    for page in docs.pages()
    for found in docs.BLOCK.finditer(page.read_text("utf-8"))
}


MARKS = {"index": pytest.mark.network} | dict.fromkeys(("lab", "long", "machine"), pytest.mark.long)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[MARKS[need] for need in sorted(each.needs & MARKS.keys())])
        for name, each in TRANSCRIPTS.items()
    ],
)
def test_the_pages_show_what_the_program_prints(name: str) -> None:
    if missing := docs.lacks(TRANSCRIPTS[name], long=True):
        pytest.skip(f"needs: {missing}")
    assert docs.stale(TRANSCRIPTS[name], write=False) == [], "run `make docs`"


def test_every_block_names_a_step_and_has_its_commands_and_output() -> None:
    for name, text in SHOWN.items():
        transcript, _, step = name.partition("/")
        commands = TRANSCRIPTS[transcript].steps[step].shown
        assert text.startswith(f"```sh\n{commands}\n```\n"), name
        assert "```text\n" in text, name


def test_a_changed_sentence_is_found_and_another_time_is_not() -> None:
    before = "6 nodes probed in 0.5 s · hnswlib 0.8.0\nSaved plan.json. Next: fleetbuild apply"
    assert docs.is_alike(before, before.replace("0.5 s", "1 min 12"))
    assert not docs.is_alike(before, before.replace("Next:", "Then:"))
    release = "release 0123456789abcdef for cpu-avx2-cp311"
    assert docs.is_alike(release, "release fedcba9876543210 for cpu-avx512-cp312")
    other_order = "\n".join(reversed(before.splitlines()))
    assert docs.is_alike(before, other_order, on_nodes=True)
    assert not docs.is_alike(before, other_order)
    assert not docs.is_alike(before, other_order.replace("Next:", "Then:"), on_nodes=True)


def test_a_filter_is_applied_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "one.sh").write_text(
        "# needs:\n## first\necho $((6 * 7)) #> | sed s/42/43/\necho 1\n"
    )
    transcript = docs.Transcript(tmp_path / "one.sh")
    assert transcript.run() == {"first": "43\n1"}
    assert transcript.steps["first"].shown == "echo $((6 * 7))\necho 1"
    assert sys.executable not in transcript.steps["first"].shown


def test_the_picture_shows_what_the_pages_show() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "picture.py"))["draw"]
    picture = (ROOT / "docs" / "images" / "fleet.svg").read_text("utf-8")
    assert picture == draw(), "run `make docs`"
    assert len(picture) < 300_000
