"""Tables about CPUs, GPUs, CUDA and PyTorch, and questions about them.

No I/O but reading the tables.
In: features, SMs, versions. Out: rungs, toolkits, compatible versions. Read `rungs.py` first.
"""
