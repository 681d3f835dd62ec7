"""Pages show what the program prints: every transcript runs, and a changed sentence is found."""

import runpy
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetbuild.cli.show.board import Board
from fleetbuild.cli.show.log_lines import LogLines
from fleetbuild.models import Event

ROOT = Path(__file__).parents[3]
docs = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "transcripts.py")))
TRANSCRIPTS = docs.transcripts()
SHOWN = {
    found["name"]: found["text"]
    for page in docs.pages()
    for found in docs.BLOCK.finditer(page.read_text("utf-8"))
}


def with_marks(name: str, *, long: bool) -> pytest.param:
    slow = long or TRANSCRIPTS[name].needs & {"lab", "long"}
    return pytest.param(
        name, long, marks=[pytest.mark.network, *([pytest.mark.long] if slow else [])],
        id=f"{name}-{'whole' if long else 'quick'}",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "long"),
    [with_marks(name, long=long) for name in TRANSCRIPTS for long in (False, True)],
)
def test_the_pages_show_what_the_program_prints(name: str, long: bool) -> None:
    if missing := docs.lacks(TRANSCRIPTS[name], long=True):
        pytest.skip(f"needs: {missing}")
    assert docs.stale(TRANSCRIPTS[name], write=False, long=long) == [], "run `make docs`"


def test_the_page_of_the_rollout_shows_what_the_recorded_events_print_now() -> None:
    """The same fleet, in two runs: the page needs a lab, the events of the picture do not."""
    events = docs.ROOT / "docs" / "evidence" / "apply.jsonl"
    recorded = [Event.model_validate_json(line) for line in events.read_text().splitlines()[1:]]
    times = [datetime.fromisoformat(event.time).timestamp() for event in recorded]
    board = Board({}, now=times[0])
    log = LogLines(board)
    printed = set()
    for event, at in zip(recorded, times, strict=True):
        board.take(event, at)
        printed |= {docs.essence(line) for line in log.take(event, at)}
    shown = {docs.essence(line) for line in SHOWN["lab/apply"].splitlines() if line[2:3] == ":"}
    assert len(shown) > 8
    assert shown - printed == set()


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


def test_quick_steps_end_at_a_long_one_and_leave_out_what_depends_on_the_machine(
    tmp_path: Path,
) -> None:
    path = tmp_path / "one.sh"
    path.write_text("## a (machine)\necho 1\n## b\necho 2\n## c (long)\necho 3\n## d\necho 4\n")
    transcript = docs.Transcript(path)
    assert transcript.run(long=False) == {"b": "2"}
    assert transcript.run() == {"a": "1", "b": "2", "c": "3", "d": "4"}


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
