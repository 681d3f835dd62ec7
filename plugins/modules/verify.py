#!/usr/bin/python
"""Run imports and checks in a release, and return the reason if one fails."""

DOCUMENTATION = r"""
module: verify
short_description: Verify a release by importing and running
description:
  - Runs the release's own python, isolated, in an empty folder and a clean environment, so that a
    check can use only the release. A crash is detected and explained.
  - Before that, with O(files), reads every file and compares it with the record of the install.
options:
  root: {description: The folder that holds the releases of one name., type: path, required: true}
  release_id: {description: The release. Empty for the current one., type: str, default: ""}
  known_failures:
    description:
      - Known failures. Each has C(patterns) (regular expressions), C(says) and C(fix).
    type: list
    elements: dict
    default: []
  node: {description: The node's name in messages., type: str, default: this node}
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
    description: CPU features that the release's code may use, as
      /proc/cpuinfo spells them. C(bin/fleetbuild-sanity) looks
      for them.
    type: list
    elements: str
    default: []
  files:
    description: Whether to read every file first and compare it
      with the record of the install.
    type: bool
    default: true
  # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Verify the current release
  fleetbuild.core.verify:
    root: /opt/fleetbuild
    imports: [hnswlib]
    checks:
      - "import hnswlib; assert hnswlib.Index('l2', 8).dim == 8"
  register: verified

- name: Mark it as verified
  fleetbuild.core.verify:
    root: /opt/fleetbuild
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

import json
import os

from ..module_utils import release_checks, release_files
from ansible.module_utils.basic import AnsibleModule
from ..module_utils.release_checks import manifest, sanity_script, try_release


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release_id": {"type": "str", "default": ""},
            "known_failures": {"type": "list", "elements": "dict", "default": []},
            "node": {"type": "str", "default": "this node"},
            "mark": {"type": "bool", "default": False},
            "unmark": {"type": "bool", "default": False},
            # generated: arguments, by make docs
            "imports": {"type": "list", "elements": "str", "default": []},
            "checks": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 300},
            "features": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "bool", "default": True},
            # end of arguments
        },
        supports_check_mode=True,
    )
    params = module.params
    release = find(params["root"], params["release_id"])
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
        reason = "Release {} does not exist in {}.".format(missing, params["root"])
        module.exit_json(changed=False, ok=False, present=False, reason=reason, fix="Install it.",
                         output="", release_id=params["release_id"], damaged=False)  # fmt: skip
    said = manifest_or_nothing(release)
    damage = damage_of(release, said) if params["files"] or not said else ""
    module.exit_json(
        changed=False,
        present=True,
        release_id=str(said.get("id") or os.path.basename(release)),
        marked=bool(said.get("verified")),
        writable=os.access(release, os.W_OK),
        damaged=bool(damage),
        **(damaged(damage) if damage else try_release(release, about, params["node"])),
    )


def find(root, release_id):
    """Return the folder of a complete release, without symlinks in its path, else None."""
    path = (
        os.path.join(root, "releases", release_id) if release_id else os.path.join(root, "current")
    )
    path = os.path.realpath(path)
    return path if os.path.exists(os.path.join(path, "manifest.json")) else None


def manifest_or_nothing(release):
    """Return the content of manifest.json; empty if it is damaged."""
    try:
        found = manifest(release)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def damage_of(release, said):
    """Return the files that differ from the install's record; empty if all match or none exists."""
    if not said:
        return "its manifest.json is damaged"
    if not os.path.exists(os.path.join(release, "bin", "python")):
        return "its Python (bin/python) is missing"
    expected = said.get("files_sha256")
    return release_files.damage(release, expected, True) if expected else ""


def damaged(what):
    """Return the result for a damaged release."""
    return {
        "ok": False,
        "reason": f"Damaged since it was installed: {what}.",
        "fix": "Install it again: fleetbuild verify INVENTORY --repair",
        "output": "",
    }


def unmark(release, check):
    """Mark the manifest as not verified."""
    found = manifest_or_nothing(release)
    if not found.get("verified"):
        return False
    if not check:
        save(release, dict(found, verified=False))
    return True


def save(release, found):
    """Write the manifest."""
    text = json.dumps(found, indent=2, sort_keys=True) + "\n"
    release_files.write(os.path.join(release, "manifest.json"), text)


def mark(release, about, check):
    """Mark the manifest as verified, and write bin/fleetbuild-sanity into the release."""
    found = manifest(release)
    if found.get("verified"):
        return False
    if not check:
        source = release_checks.__loader__.get_source(release_checks.__name__)
        script = sanity_script(source, about, found.get("python", ""))
        path = os.path.join(release, "bin", "fleetbuild-sanity")
        release_files.write(path, script, 0o755)
        save(release, dict(found, verified=True))
    return True


if __name__ == "__main__":
    main()
