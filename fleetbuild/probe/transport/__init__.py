"""Transports that run a script on a node: locally, with Fabric, or with the ssh program."""
