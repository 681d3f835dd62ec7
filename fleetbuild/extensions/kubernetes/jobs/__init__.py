"""The builds of a plan as Kubernetes Jobs."""
