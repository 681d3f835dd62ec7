"""The wheels of a plan: source, build requirements, flags, builder and key of each."""
