"""Make a plan of a fleet: probe the nodes, ask indexes and the store, and let `planning` decide.

In: inventory and configuration. Out: a saved plan. Read `plan_fleet.py` first.
"""
