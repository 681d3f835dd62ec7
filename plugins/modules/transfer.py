#!/usr/bin/python
"""Send files to a node by the connection alone. The action plugin of this name does the work."""

DOCUMENTATION = r"""
module: transfer
short_description: Send files to a node, without running anything there
description:
  - Sends each file to O(folder), into the folder that its hash names. The folders must be there;
    M(fleetbuild.core.release) with C(state=begun) makes them, and with C(state=present) checks what
    arrived.
  - Files are streamed from the disk, by one call of C(sftp), over the connection that is open.
  - A C(sftp) or C(scp) in which nothing moves for 300 s is ended, and the host is unreachable.
options:
  folder: {description: The folder on the node., type: path, required: true}
  files:
    description:
      - The files, each with C(path) on the controller and C(sha256), and with C(file) for another
        name on the node.
    type: list
    elements: dict
    required: true
  for_login:
    description: Whether the folders belong to the user who logs in, although another one runs this.
    type: bool
    default: false
  bandwidth:
    description: Kbit/s at most, by the option C(-l) of C(sftp) and C(scp). 0 for no limit.
    type: int
    default: 0
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Send a wheel
  fleetbuild.core.transfer:
    folder: /opt/fleetbuild/wheels
    files:
      - path: wheels/six-1.17.0-py2.py3-none-any.whl
        file: six-1.17.0-py2.py3-none-any.whl
        sha256: 4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
"""

RETURN = r"""
changed:
  description: Whether there was something to send.
  returned: always
  type: bool
"""
