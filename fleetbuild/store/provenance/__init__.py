"""The provenance of a stored wheel: its statement, its list of parts."""
