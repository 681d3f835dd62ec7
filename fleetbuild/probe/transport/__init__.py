"""How a script reaches a node: locally, by Fabric, or by the ssh program."""
