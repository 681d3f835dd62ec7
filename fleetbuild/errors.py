"""Errors that a user can act on: one class per cause, each with its exit code.

Unreachable nodes, failed builds and failed verifications are not exceptions: they are in the
`Result`, whose `exit_code` is then 3, 5 or 7, and do not stop the rest of the run.
"""

from __future__ import annotations

import shlex
from typing import ClassVar


class FleetbuildError(Exception):
    """An error that a user can act on. `message` says what happened, `fix` what to do now."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(FleetbuildError):
    """The command line or a call is wrong: options exclude each other, or a file is missing."""

    exit_code = 2


class ConfigError(FleetbuildError):
    """fleetbuild.yml or a package named on the command line is invalid."""

    exit_code = 2


class InventoryError(FleetbuildError):
    """The inventory is missing, cannot be read, or has no hosts."""

    exit_code = 2


class ConfigAsInventoryError(InventoryError):
    """A configuration was named in the place of the inventory; `command` is the one to repeat."""

    def __init__(self, source: str, command: str = "plan") -> None:
        super().__init__(
            f"{source} is a fleetbuild configuration, not an inventory.",
            "Name the inventory, and this file with --config:"
            f" fleetbuild {command} INVENTORY --config {shlex.quote(source)}",
        )
        self.source = source


class RecipeError(FleetbuildError):
    """A recipe is invalid, or no recipe fits."""

    exit_code = 2


class PlanFileError(FleetbuildError):
    """The plan file is missing, not a plan, damaged, edited, or in a newer format."""

    exit_code = 2


class CaptureError(FleetbuildError):
    """The folder of captures cannot be read."""

    exit_code = 2


class ResolutionError(FleetbuildError):
    """The package index does not have this package or version."""

    exit_code = 2


class KubeconfigError(FleetbuildError):
    """The kubeconfig is missing or invalid, or does not have the context."""

    exit_code = 2


class ClusterError(FleetbuildError):
    """The Kubernetes API server did not answer or refused the login."""

    exit_code = 3


class ForbiddenError(FleetbuildError):
    """The Kubernetes login lacks a permission that the command needs."""

    exit_code = 4


class BlockedError(FleetbuildError):
    """The plan, or the requested action, is blocked."""

    exit_code = 4


class InstallError(FleetbuildError):
    """A file could not be fetched, sent to a node or installed there."""

    exit_code = 6


class AuditError(InstallError):
    """A fetched wheel holds what it may not."""

    exit_code = 7


class LockedError(FleetbuildError):
    """Another run holds the run lock."""

    exit_code = 8


class StalePlanError(FleetbuildError):
    """The fleet has changed since the plan was made."""

    exit_code = 9


class Interrupted(FleetbuildError):
    """The run was interrupted by Ctrl-C, SIGTERM or SIGHUP."""

    exit_code = 130


# If several apply, the first of these is the exit code: the most serious one.
EXIT_PRECEDENCE = (130, 1, 2, 8, 9, 5, 6, 7, 4, 3, 0)


def worst(codes: list[int]) -> int:
    """Return the exit code of a run in which all of these occurred."""
    return min(codes, key=EXIT_PRECEDENCE.index, default=0)
