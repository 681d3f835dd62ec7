"""One module per command: arguments in, one call of `Fleet`, its answer printed."""
