"""Decide which wheels are built on which nodes: eligibility, groups, representatives.

In: inventory, facts, packages, configuration, locks and the store's contents. Out: drafts of
wheels and groups. Pure functions, without I/O. Read `group_fleet.py` first, then `wheels/draft.py`.
"""
