"""One class per thing a user can meet: the exit code, what happened, and what to do now."""

from __future__ import annotations

from typing import ClassVar


class FleetbuildError(Exception):
    """Something that a user can act on. `message` says what happened, `fix` what to do."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(FleetbuildError):
    """The command line asks for something that makes no sense."""

    exit_code = 2


class ConfigError(FleetbuildError):
    """fleetbuild.yml, or a package named on the command line, is wrong."""

    exit_code = 2


class InventoryError(FleetbuildError):
    """The inventory is missing, cannot be read, or names no node."""

    exit_code = 2


class RecipeError(FleetbuildError):
    """A recipe is malformed, or no recipe fits."""

    exit_code = 2


class PlanFileError(FleetbuildError):
    """The plan file is missing, not a plan, damaged, edited, or of a newer format."""

    exit_code = 2


class CaptureError(FleetbuildError):
    """The folder of captures cannot be read."""

    exit_code = 2


class ResolutionError(FleetbuildError):
    """The index was asked and has no answer: no such package, no such version."""

    exit_code = 2


class UnreachableError(FleetbuildError):
    """A node did not answer, or would not let us in."""

    exit_code = 3


class KubeconfigError(FleetbuildError):
    """The kubeconfig is missing or wrong, or has no such context."""

    exit_code = 2


class ClusterError(FleetbuildError):
    """The Kubernetes API server did not answer, or would not let us in."""

    exit_code = 3


class ForbiddenError(FleetbuildError):
    """The Kubernetes API server does not let this login do what it has to do."""

    exit_code = 4


class BlockedError(FleetbuildError):
    """The plan cannot be applied as it stands."""

    exit_code = 4


class BuildError(FleetbuildError):
    """A wheel did not come out of its build."""

    exit_code = 5


class InstallError(FleetbuildError):
    """A wheel could not be moved to a node or installed there."""

    exit_code = 6


class VerifyError(FleetbuildError):
    """A wheel is not what its target promises, or does not work on a node."""

    exit_code = 7


class LockedError(FleetbuildError):
    """Another run holds the lock."""

    exit_code = 8


class StalePlanError(FleetbuildError):
    """The fleet is no longer the one that was planned for."""

    exit_code = 9


class Interrupted(FleetbuildError):
    """The user pressed Ctrl-C."""

    exit_code = 130


# Where several hold, the one that stopped the most decides the exit code.
EXIT_PRECEDENCE = (130, 1, 2, 8, 9, 5, 6, 7, 4, 3, 0)


def worst(codes: list[int]) -> int:
    """The exit code of a run in which all of these happened."""
    return min(codes, key=EXIT_PRECEDENCE.index, default=0)
