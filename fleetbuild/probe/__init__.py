"""Read each node's hardware and software, in one round trip per node.

In: nodes of the inventory. Out: each node's capture, or why it could not be reached. Read
`probing.py` first; `parsing/` turns captures into facts, `transport/` runs the script on nodes,
`inventory/` reads the nodes. Nothing is imported here: reading an inventory starts Ansible first.
"""
