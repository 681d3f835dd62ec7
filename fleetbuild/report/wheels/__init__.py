"""How wheels are shown: audits, provenance, revocations, the store."""
