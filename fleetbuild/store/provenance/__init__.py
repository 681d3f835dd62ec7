"""The provenance of a stored wheel: its statement, its signature, its list of parts."""
