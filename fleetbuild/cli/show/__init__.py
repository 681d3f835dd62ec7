"""Output: tables, progress, JSON. Nothing else prints."""

from fleetbuild.cli.show.output import Output

__all__ = ["Output"]
