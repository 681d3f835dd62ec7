"""How a release gets into a pod: workloads, images, Kustomize. No I/O. Read `render.py` first."""
