"""Turn the text that a node printed into facts. Pure functions; all input is untrusted."""
