"""A run while it goes on: rows at a terminal, lines in a log, JSON for programs."""
