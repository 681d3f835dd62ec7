"""Parts of the build stage: events and paths of builds, and failover to other builders.

Start with `apply/build.py`, which uses them.
"""
