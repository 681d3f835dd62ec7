"""Write manifests and scripts from a plan, one kind for each `fleetbuild emit` subcommand.

In: a plan, the releases that serve, options. Out: file names, texts and warnings. Extensions
have the kinds.
"""
