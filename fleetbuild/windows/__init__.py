"""Windows nodes: read their facts, plan groups for them, write scripts; nothing is built there.

In: a Windows node's probe, a plan. Out: facts, `WindowsGroup`s, a PowerShell script per group. Read
`planning.py` first.
"""

from fleetbuild.windows.build_script import windows_files, windows_warnings

__all__ = ["windows_files", "windows_warnings"]
