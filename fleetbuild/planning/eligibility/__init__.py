"""Node eligibility: decide which nodes can be planned for; give the others a reason and a fix."""
