"""What a node printed, as facts. Pure: text in, facts out; all of it is untrusted."""
