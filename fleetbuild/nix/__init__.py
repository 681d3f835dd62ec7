"""Groups in the terms of Nix and Flox. No I/O.

In: a plan, and the files of each group's release. Out: file names and texts.
"""

from fleetbuild.nix.expressions import nix_files
from fleetbuild.nix.flox import flox_files, flox_warnings

__all__ = ["flox_files", "flox_warnings", "nix_files"]
