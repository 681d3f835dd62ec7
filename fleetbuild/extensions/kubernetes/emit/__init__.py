"""The kinds of `fleetbuild emit` for Kubernetes. Read `writers.py` first."""
