"""Build scripts for groups of Windows nodes. No I/O.

In: a plan. Out: file names and texts: a PowerShell script for each group, with its patches, files
and checks beside it.
"""

from fleetbuild.windows.build_script import windows_files, windows_warnings

__all__ = ["windows_files", "windows_warnings"]
