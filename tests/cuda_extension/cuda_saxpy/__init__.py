"""a * x + y on the first GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_library = ctypes.CDLL(str(next(Path(__file__).parent.glob("_saxpy.*"))))
_library.cuda_saxpy.argtypes = [ctypes.c_int, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p]
_library.cuda_error.restype = ctypes.c_char_p


def saxpy(a: float, x: Sequence[float], y: Sequence[float]) -> list[float]:
    """a * x + y; RuntimeError with CUDA's words where it cannot be computed."""
    floats = ctypes.c_float * len(x)
    result = floats(*y)
    if error := _library.cuda_saxpy(len(x), a, floats(*x), result):
        raise RuntimeError(f"CUDA error: {_library.cuda_error(error).decode()}")
    return list(result)
