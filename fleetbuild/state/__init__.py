"""The state directory, the run lock and the journal: what a run saves for the next one."""
