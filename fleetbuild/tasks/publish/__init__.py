"""What leaves the store for others: indexes of the groups, and a table of their wheels."""
