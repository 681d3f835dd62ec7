"""What of CUDA, GPUs, drivers, PyTorch, gcc and Python goes with what, and the nearest alternative.

No I/O but reading the tables.
In: a node's facts, SMs, versions. Out: toolkits and compilers that suit, or why none does and the
fix that a blocked node is offered. Read `constraints.py` first.
"""
