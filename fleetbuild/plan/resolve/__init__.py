"""Resolve what a plan needs from package indexes: dependencies, sources, published wheels.

In: requests of `decide/`. Out: locks and metadata. Read `uv.py` first.
"""
