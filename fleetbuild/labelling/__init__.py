"""Keep the Kubernetes labels of nodes right while a run changes the nodes.

`labeller.py` defines what a labeller does and which releases are labelled; `api.py` labels by the
Kubernetes API, `nfd.py` by files for Node Feature Discovery.
"""
