"""Tasks on stored wheels: list, fetch, revoke, show their provenance, remove."""
