"""A library that is hard to compile."""
