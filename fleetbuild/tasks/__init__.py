"""Tasks besides plan and apply: verify, rollback, status, explain, emit, doctor, store upkeep.

Each module is one command. `fleet_task.py` runs one playbook on every node that has a release;
verify and rollback are built on it.
"""
