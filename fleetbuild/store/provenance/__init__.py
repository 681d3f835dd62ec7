"""Where a stored wheel comes from: its record, signatures, bill of materials and revocations."""
