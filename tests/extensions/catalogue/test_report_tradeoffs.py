from collections.abc import Callable

from fleetbuild.extensions.catalogue.show import tradeoff_table
from fleetbuild.models import Loss, Tradeoff
from tests.factories.plans import make_plan

ROWS = (
    Tradeoff(wheel_sets=2, chosen=False, minutes=4, size_mb=12, cost=4),
    Tradeoff(
        wheel_sets=1, chosen=True, minutes=150, size_mb=2500, cost=900, exact=False,
        losses=(
            Loss(group="cpu-avx512-cp311", nodes=5, wheel_set="cpu-avx2-cp311", rung="avx512",
                 slower=0.111),
            Loss(group="cpu-\x1b[2Jx", nodes=1, wheel_set="w", sms=("7.5", "9.0")),
        ),
    ),
)  # fmt: skip


def test_a_tradeoff_row_shows_time_size_and_losses(rendered: Callable[..., str]) -> None:
    loser = "cpu-avx512-cp311 (5 nodes) gets cpu-avx2-cp311: without avx512"
    text = rendered(tradeoff_table(make_plan(tradeoffs=ROWS)))
    assert text.splitlines() == [
        "   wheel sets  on 8 cores, size  what nodes lose",
        "            2  4 min, 12 MB      nothing",
        f">           1  2.5 h, 2.5 GB     {loser}, CPU work expected to take 11 % longer",
        " " * 33 + "cpu-x (1 node) gets w: with GPU code for SM 7.5 and 9.0 of others",
        " " * 33 + "Not every combination was compared.",
    ]  # fmt: skip
    assert max(map(len, rendered(tradeoff_table(make_plan(tradeoffs=ROWS)), 60).splitlines())) <= 60
