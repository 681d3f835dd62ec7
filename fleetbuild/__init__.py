"""Mixed fleets, one targeted wheel for each kind of node."""
