#!/usr/bin/python
"""Move files by the connection alone. The action plugin of this name does the work."""

DOCUMENTATION = r"""
module: transfer
short_description: Send files to a node, or fetch files from it
description:
  - Sends each file to O(folder), into the folder that its hash names. The folders must be there;
    M(fleetbuild.core.release) with C(state=begun) makes them, and with C(state=present) checks what
    arrived.
  - Files are streamed from the disk, by C(sftp), over the connection that is open.
  - If another user than the one who logs in runs this, files arrive in a temporary folder, and that
    user copies them. Files are fetched by the user who logs in.
  - A C(sftp) or C(scp) in which nothing moves for 300 s is ended, and the host is unreachable.
options:
  folder: {description: The folder on the node., type: path, required: true}
  files:
    description:
      - The files, each with C(path) on the controller and C(sha256), and with C(file) for another
        name on the node.
    type: list
    elements: dict
    default: []
  fetch:
    description:
      - Files to fetch into O(dest), each with C(path) below O(folder). With C(sha256), a file that
        is there already is not fetched, and one with another hash fails. One that is C(optional)
        and cannot be fetched fails nothing.
      - Of a wheel at most 8 GiB are fetched, of a log 256 MiB, and of another file 4 MiB.
    type: list
    elements: dict
    default: []
  dest: {description: The folder on the controller for the files of O(fetch)., type: path}
  for_login:
    description: Whether the folders belong to the user who logs in, although another one runs this.
    type: bool
    default: false
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

- name: Fetch the log of a build
  fleetbuild.core.transfer:
    folder: /var/cache/fleetbuild/builds/0123456789abcdef0123456789abcdef
    fetch:
      - path: build.log
    dest: logs
"""

RETURN = r"""
changed:
  description: Whether there was something to send, or something else was fetched than was there.
  returned: always
  type: bool
lacking:
  description: The optional files that could not be fetched.
  returned: if there was something to fetch
  type: list
  elements: str
"""
