"""Write YAML with stable bytes, and change YAML that a user wrote without touching the rest."""
