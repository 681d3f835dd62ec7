"""The plan document: assembled, checked, given a digest, written and read."""
