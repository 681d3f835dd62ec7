"""Talks to a Kubernetes API server: labels on nodes, and what nodes are."""
