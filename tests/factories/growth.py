"""Whether a reader's work grows with its text, or with the square of it."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """The processor time of the best of three, which other programs do not add to."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
        if taken[-1] < 0.02:
            break
    return min(taken)


def is_linear(work: Callable[[int], Callable[[], object]], limit: int) -> bool:
    """Whether four times the text costs about four times the work: sixteen is what a quadratic
    one takes. What takes no time at the limit needs no comparison."""
    whole = seconds(work(limit))
    if whole < 0.1:
        return True
    return whole < 5 and whole < 9 * max(seconds(work(limit // 4)), 0.01)


def filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]
