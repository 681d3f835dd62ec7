"""Which groups share a set of wheels, and what sharing costs."""
