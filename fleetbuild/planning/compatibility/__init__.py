"""What goes with what: CUDA toolkits, GPUs, drivers, PyTorch, compilers.

Read `constraints.py` first; `alternatives.py` computes the fix that a blocked node is offered.
"""
