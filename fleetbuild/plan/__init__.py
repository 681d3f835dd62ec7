"""Make a plan of a fleet.

In: inventory, facts, configuration. Out: a saved plan. Read `plan_fleet.py` first: it asks
indexes and the store (`resolve/`), lets `decide/` decide, and writes the document (`document/`).
"""
