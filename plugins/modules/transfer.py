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
  peers:
    description:
      - If set, hosts that are reached over SSH give more than 4 MiB of files to each other, by
        plain HTTP, each to the next one that needs them.
      - C(port), at which they listen while files arrive; C(folder), an empty one of the controller,
        for this run; C(bandwidth), kbit/s for the one host that the controller sends to, in place
        of O(bandwidth).
      - Hosts reach each other by the variable C(fleetbuild_peer_address), else C(ansible_host).
    type: dict
    default: {}
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
given_by:
  description: The host that gave the files.
  returned: if another host did
  type: str
patches:
  description: How many of the files are patches, each in place of a wheel.
  returned: if there was something to send
  type: int
not_given:
  description: Why no other host gave them, so that the controller sent them.
  returned: if other hosts were asked, or this one cannot give them on
  type: str
"""
