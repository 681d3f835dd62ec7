"""Compatibility of CUDA toolkits, GPUs, drivers, PyTorch and compilers.

Read `constraints.py` first; `alternatives.py` computes the fix that a blocked node is offered.
"""
