"""What a rollout does with some nodes of a group: install, run hooks, switch, go back.

Start with `wave.py`.
"""
