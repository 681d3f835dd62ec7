"""What a user does besides plan and apply: verify, roll back, status, explain, emit, store upkeep.

Each module is one command. `fleet_task.py` runs one playbook on every node;
verify and rollback use it.
"""
