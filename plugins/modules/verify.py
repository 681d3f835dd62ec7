#!/usr/bin/python
"""Run imports and checks in a release, and return the reason if one fails."""

DOCUMENTATION = r"""
module: verify
short_description: Verify a release by importing and running
description:
  - Runs the release's own python, isolated, in an empty folder and a clean environment, so that a
    check can use only the release. A crash is detected and explained.
  - Before that, with C(spec.files), reads every file and compares it with the record of the
    install.
options:
  known_failures:
    description:
      - Known failures. Each has C(name), C(patterns) (regular expressions), C(says) and C(fix).
        Without this option, the collection's own table.
    type: list
    elements: dict
    default: []
  node:
    description: The node's name in messages. Without this option, its name in the inventory.
    type: str
    default: this node
  mark:
    description:
      - Run nothing. Write into the manifest that the release is verified, and write
        C(bin/fleetbuild-sanity).
    type: bool
    default: false
  unmark:
    description: Run nothing. Write into the manifest that the release is not verified.
    type: bool
    default: false
  spec:
    description: The release, and what to run in it.
    type: dict
    suboptions:
      # generated: documentation, by make docs
      imports:
        description: Modules to import.
        type: list
        elements: str
        default: []
      checks:
        description: Python snippets that must run without an exception.
        type: list
        elements: str
        default: []
      timeout:
        description: Seconds for all imports and checks together.
        type: int
        default: 300
      features:
        description: CPU features that the release's code may use, as /proc/cpuinfo spells
          them. C(bin/fleetbuild-sanity) looks for them.
        type: list
        elements: str
        default: []
      path:
        description: Where releases live on the node. Root is used only if the user cannot
          write.
        type: path
        default: /opt/fleetbuild
      release:
        description: The release's name. Each name but "default" gets its own folder; current,
          history, releases and wheels are reserved.
        type: str
        default: default
      release_id:
        description: The release to verify. Empty for the current one.
        type: str
        default: ''
      files:
        description: Whether to read every file first and compare it with the record of
          the install.
        type: bool
        default: true
      # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Verify the current release
  fleetbuild.core.verify:
    spec:
      imports: [hnswlib]
      checks:
        - "import hnswlib; assert hnswlib.Index('l2', 8).dim == 8"
  register: verified

- name: Mark it as verified
  fleetbuild.core.verify:
    spec:
      imports: [hnswlib]
    mark: true
  when: verified.ok
"""

RETURN = r"""
ok:
  description: Whether everything ran.
  returned: mark and unmark are false
  type: bool
present:
  description: Whether the release exists.
  returned: mark and unmark are false
  type: bool
release_id:
  description: The release that was verified.
  returned: mark and unmark are false
  type: str
reason:
  description: Why a check failed, as a sentence. Empty if all passed.
  returned: mark and unmark are false
  type: str
fix:
  description: What to do about it.
  returned: mark and unmark are false
  type: str
output:
  description: The end of what the failed check printed.
  returned: mark and unmark are false
  type: str
damaged:
  description: Whether files are not as they were installed. The release must be installed again.
  returned: mark and unmark are false
  type: bool
marked:
  description: Whether the release was marked as verified before.
  returned: mark and unmark are false and the release is there
  type: bool
writable:
  description: Whether this user can mark it. If not, root is needed.
  returned: mark and unmark are false and the release is there
  type: bool
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.exceptions import reported
from ..module_utils.release_root import Problem
from ..module_utils.release_verifying import (
    damage_of,
    damaged,
    find,
    manifest_or_nothing,
    mark,
    try_release,
    unmark,
)

# generated: arguments, by make docs
SPEC = {
    "imports": {"type": "list", "elements": "str", "default": []},
    "checks": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 300},
    "features": {"type": "list", "elements": "str", "default": []},
    "path": {"type": "path", "default": "/opt/fleetbuild"},
    "release": {"type": "str", "default": "default"},
    "release_id": {"type": "str", "default": ""},
    "files": {"type": "bool", "default": True},
}
# end of arguments


def main():
    module = AnsibleModule(
        argument_spec={
            "known_failures": {"type": "list", "elements": "dict", "default": []},
            "node": {"type": "str", "default": "this node"},
            "mark": {"type": "bool", "default": False},
            "unmark": {"type": "bool", "default": False},
            "spec": {
                "type": "dict",
                "apply_defaults": True,
                "options": SPEC,
            },
        },
        supports_check_mode=True,
    )
    with reported(module):
        work(module)


def work(module):
    """Verify a release, or mark it, and answer."""
    params = {**module.params, **module.params["spec"]}
    named = params["release"] != "default"
    root = os.path.join(params["path"], params["release"]) if named else params["path"]
    release = find(root, params["release_id"])
    about = {
        name: params[name]
        for name in ("imports", "checks", "timeout", "features", "known_failures")
    }
    if params["mark"]:
        module.exit_json(changed=mark(release, about, module.check_mode))
    if params["unmark"]:
        module.exit_json(changed=unmark(release, module.check_mode))
    if not release:
        missing = params["release_id"] or "current"
        reason = f"Release {missing} does not exist in {root}."
        module.exit_json(
            changed=False,
            ok=False,
            present=False,
            reason=reason,
            fix=["install-release"],
            output="",
            release_id=params["release_id"],
            damaged=False,
        )
    said = manifest_or_nothing(release)
    try:
        damage = damage_of(root, release, said) if params["files"] or not said else ""
    except Problem as problem:
        module.fail_json(msg=str(problem), fix=problem.fix)
    module.exit_json(
        changed=False,
        present=True,
        release_id=str(said.get("id") or os.path.basename(release)),
        marked=bool(said.get("verified")),
        writable=os.access(release, os.W_OK),
        damaged=bool(damage),
        **(damaged(damage) if damage else try_release(release, about, params["node"])),
    )


if __name__ == "__main__":
    main()
