"""Publish what the store holds for others: an index per group, in a folder or on a server.

In: a plan and the store. Out: files, or an upload. Read `export.py` first.
"""
