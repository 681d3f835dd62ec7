"""Everything for Kubernetes: manifests (pure), labels, the API client, build Jobs.

In: a plan and the release that each node serves. Out: file names and texts, labels on Nodes. Read
`manifests/render.py` first.
"""
