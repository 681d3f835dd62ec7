"""Everything that is shown: tables, progress, JSON. The only place that prints."""

from fleetbuild.report.output import Output

__all__ = ["Output"]
