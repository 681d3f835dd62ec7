"""How a release gets into a pod: workloads, images, Kustomize, the user's own manifests."""
