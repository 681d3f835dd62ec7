"""The plan as a document: assemble it, compare it with the fleet, write and read it.

In: a draft, locks, facts. Out: `plan.json`. Read `make_plan.py` first. All but `files.py` is pure.
"""
