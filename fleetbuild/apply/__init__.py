"""Carry out a plan, stage by stage.

In: a plan, the inventory and the `Tools` of `context.py`. Out: a `Result`. Read
`stages.py` first: it lists the stages in order; each stage is a module here.
"""
