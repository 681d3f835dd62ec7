"""Carry out a plan, stage by stage.

In: a plan, the inventory and the `Tools` of `context.py`. Out: a `Result`. Read
`stages.py` first: it lists the stages in order; each stage is a module here.
"""

GROUPS_AT_ONCE = 8  # out of step, each has an ansible-playbook, which takes 100 MB
