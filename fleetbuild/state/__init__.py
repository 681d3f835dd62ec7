"""The state directory, the run lock and the journal: what one run leaves for the next."""
