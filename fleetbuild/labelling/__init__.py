"""Kubernetes labels of nodes while a run changes them.

`labeller.py` says what a labeller does and which releases are labelled; `api.py` labels by the
Kubernetes API, `nfd.py` by files for Node Feature Discovery.
"""
