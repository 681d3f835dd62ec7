"""What users ask about single wheels: `provenance` checks one, `revoke` recalls one."""
