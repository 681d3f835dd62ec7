"""Which nodes can be planned for; for each other node a reason and a fix. First step of a plan."""
