"""Output: tables, progress, JSON. Nothing else prints."""

from fleetbuild.report.output import Output

__all__ = ["Output"]
