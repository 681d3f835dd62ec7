"""Carry out a plan, stage by stage.

In: a plan, the inventory and the tools of `context.py`. Out: a `Result`. Read `stages.py` first: it
lists the stages in their order; each is a module here.
"""
