"""The wheels of a plan: source, flags, builder and key of each."""
