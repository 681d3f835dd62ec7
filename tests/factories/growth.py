"""Whether a reader's work grows with its text, or with the square of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """The processor time of a call, without collecting the garbage that other tests left."""
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


def is_linear(work: Callable[[int], Callable[[], object]], limit: int) -> bool:
    """Whether four times the text costs about four times the work: sixteen is what a quadratic
    one takes. What takes no time at the limit needs no comparison.

    Both are measured in turns, and the best of each counts: a busy machine disturbs single ones.
    """
    whole, part = [], []
    for _ in range(5):
        whole.append(seconds(work(limit)))
        if min(whole) < 0.1:
            return True
        part.append(seconds(work(limit // 4)))
        if min(whole) < 5 and min(whole) < 9 * min(part):
            return True
    return False


def filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]
