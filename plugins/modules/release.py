#!/usr/bin/python
"""Releases on a node: query, create, switch, roll back."""

DOCUMENTATION = r"""
module: release
short_description: Create a release from wheels and switch to it in one atomic step
description:
  - A release is a virtual environment in C(<root>/releases/<id>) with a C(manifest.json), which is
    written last, once all files are on the disk. C(manifest.files) records their hashes. A release
    with changed files is created again; until then, if it is current, it serves from another
    folder. C(<root>/current) is a symlink that is replaced by rename. C(<root>/history) lists
    the releases that served. It is written before a switch, so what follows the last line of the
    current release has not served since then.
  - On a node with a file C(/etc/fleetbuild/allowed_signers), C(begun), C(present) and C(active)
    refuse a release without a C(spec.signature) of an allowed signer, and C(previous) passes over
    releases that were made without one.
options:
  state:
    description:
      - C(query) returns the state of the release and of the current one, and changes nothing.
      - C(begun) answers as C(query). Unless the release serves already, it also takes the lease of
        the folder, so that no other controller changes it meanwhile. It fails if the disk does not
        have enough space for the release. It takes nothing where this user cannot write and root
        could.
      - C(present) creates the release beside the current one. With C(spec.verify) it also verifies
        it, and with C(spec.activate) switches to it, all under one lease.
      - C(active) switches to the release and removes old ones.
      - C(previous) switches back to the verified release that served before, or, with
        C(spec.withdraw), to none.
      - C(ended) ends the lease of a run that failed. C(active) and C(previous) end it themselves.
      - C(absent) removes C(current) and all releases. A release that is mounted or in use stays.
    choices: [query, begun, present, active, previous, ended, absent]
    default: query
    type: str
  counter:
    description:
      - What C(begun) returned. A step is refused if another run has taken over the lease since.
        0 for a run without a lease; it is refused while the run of another controller has one.
    type: int
    default: 0
  login_uid:
    description:
      - The uid of the user who sends the files, if this user, root, is another one. C(begun) makes
        folders of that user's for them, unless that user cannot enter the path. C(spec.login_uid)
        says the same.
    type: int
    default: 0
  begun:
    description:
      - With C(begun), the reply to another user of the node. If that user could write, it is the
        result, and the controller does not ask the node again.
    type: dict
  whole:
    description: Whether C(begun) has found the release complete, so that C(present) makes nothing.
    type: bool
    default: false
  known_failures:
    description: As for M(fleetbuild.core.verify).
    type: list
    elements: dict
    default: []
  node: {description: The node's name in messages., type: str, default: this node}
  spec:
    description: The release.
    type: dict
    suboptions:
      # generated: documentation, by make docs
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
      controller:
        description: Who changes the node, for messages to others. While a run changes the
          releases of a node, runs of other controllers are refused there.
        type: str
        default: ''
      plan:
        description: The plan that the release comes from, for messages.
        type: str
        default: ''
      replaces:
        description: The release that served when the run looked; another one stays. Empty
          for any.
        type: str
        default: ''
      space:
        description: 'Bytes that the release needs while it is made: copied wheels, their
          unpacked files and the environment. Wheels that the node links instead are left
          out there. With less on the disk, nothing is copied.'
        type: int
        default: 0
      lease:
        description: Seconds after each step for which runs of other controllers are refused.
          The copy of all wheels is one step. At most a day.
        type: int
        default: 1800
      login_uid:
        description: 'The uid of the user who logs in, if it is known that only root can
          write to the path: then the role asks as root at once. 0 if that is not known.'
        type: int
        default: 0
      release_id:
        description: Names the release's folder. By default a hash over the wheels and the
          interpreter.
        type: str
      keep:
        description: How many releases stay on the node. The current and the previous release
          always stay, and so does a release that is mounted or in use.
        type: int
        default: 2
      in_use:
        description: Old releases that have to stay, each with the reason, such as the pod
          that mounts it. The node adds the releases that it sees mounted or in use.
        type: dict
        default: {}
      wheels:
        description: 'All wheels to install, dependencies included: no index is used.'
        type: list
        elements: dict
        suboptions:
          path:
            description: Its path on the controller, which ends with the file's name.
            type: str
            required: true
          file:
            description: The file's name.
            type: str
            required: true
          sha256:
            description: Its hash.
            type: str
            required: true
          size:
            description: 'Its size in bytes. A file of another size is not read. 0 if it
              is unknown: then no file of more than 8 GiB is read.'
            type: int
          commands:
            description: The names that it adds to bin/. If all wheels say so, an install
              that adds another or changes one of Python's ends.
            type: list
            elements: str
        default: []
      installer:
        description: 'uv, which installs the wheels: C(path) on the controller, C(file),
          C(sha256) and C(size). The node keeps it beside the releases, and unpacks it if
          C(file) ends in C(.gz). Without it, or where the node does not run it, pip installs
          the wheels.'
        type: dict
        default: {}
      python:
        description: The interpreter that the release is made with, on the node.
        type: path
        default: /usr/bin/python3
      manifest:
        description: The content of manifest.json in the release.
        type: dict
      statement:
        description: 'The signed statement about the release: C(root), C(manifest) without
          the values of one node, C(wheels) (hashes by file name), C(plan) and C(counter).
          Nodes with allowed signers need it.'
        type: dict
        default: {}
      signature:
        description: The signature by C(ssh-keygen -Y sign -n release@fleetbuild.dev) of
          the statement, as JSON with sorted keys and without spaces.
        type: str
        default: ''
      activate:
        description: Switch to the release at the end.
        type: bool
        default: true
      verify:
        description: 'How to verify the release before the switch: C(imports), C(checks),
          C(timeout) and C(features) as in the role verify_wheel. Empty to leave it out.'
        type: dict
        default: {}
      revoked:
        description: 'For a rollback: revoked wheels, by sha256 or as name==version. It
          passes over releases that hold one.'
        type: list
        elements: str
        default: []
      withdraw:
        description: 'For a rollback: remove C(current), so that no release serves. The
          releases stay.'
        type: bool
        default: false
      # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: See which release serves
  fleetbuild.core.release:
    state: query
  register: there

- name: Make a release of one wheel, which is in /opt/fleetbuild/wheels/<sha256>, and switch to it
  fleetbuild.core.release:
    state: present
    spec:
      path: /opt/fleetbuild
      release_id: "2026-11"
      wheels:
        - path: downloads/six-1.17.0-py2.py3-none-any.whl
          file: six-1.17.0-py2.py3-none-any.whl
          sha256: 4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274

- name: Go back
  fleetbuild.core.release:
    state: previous
"""

RETURN = r"""
counter:
  description: The counter of the lease. 0 if none was taken.
  returned: state is begun
  type: int
took_over:
  description: From which dead run the lease was taken, as a sentence. Usually empty.
  returned: state is begun
  type: str
root:
  description: The folder of the releases.
  returned: state is query or begun
  type: str
complete:
  description: Whether the release exists with exactly this manifest and all files as installed.
  returned: state is query or begun
  type: bool
verified:
  description: Whether the release's manifest says that it was verified on this node.
  returned: state is query or begun
  type: bool
incoming:
  description: The folder to send the missing files to, each in a folder that its hash names.
  returned: state is begun
  type: str
serving:
  description: The id of the current release. Empty if no release is current.
  returned: state is query or begun
  type: str
there:
  description: Whether the folder of the releases exists.
  returned: state is query or begun
  type: bool
writable:
  description: Whether this user can write there. If not, root is needed.
  returned: state is query or begun
  type: bool
user:
  description: The uid of this user.
  returned: state is query or begun
  type: int
for_login:
  description: Whether the folders in C(incoming) belong to the user who logs in.
  returned: state is query or begun
  type: bool
became:
  description: Whether another user than the one who logs in began the release.
  returned: state is begun, and O(begun) is given
  type: bool
login_uid:
  description: The uid of the user who logs in, if that one cannot write. Else 0.
  returned: state is begun, and O(begun) is given
  type: int
missing:
  description: The wheels, and what installs them, as far as they are still to be sent.
  returned: state is begun
  type: list
  elements: dict
release_id:
  description: The release that was installed, or that serves now.
  returned: state is present or previous
  type: str
previous:
  description: The release that served before.
  returned: state is present, active, previous or absent
  type: str
packages:
  description: The name and version of each wheel in the release that serves now.
  returned: state is previous
  type: list
  elements: str
active:
  description: Whether the release serves now.
  returned: state is present
  type: bool
made_by:
  description: What installed the wheels, C(uv) or C(pip); C(venv) for a release
    without wheels, C(manifest) if only the manifest changed. Empty if nothing changed.
  returned: state is present
  type: str
verification:
  description: How the verification ended, as C(ok), C(release_id), C(reason), C(fix) and C(output).
  returned: state is present, and C(spec.verify) is not empty
  type: dict
pruned:
  description: The releases that were removed.
  returned: state is present, active or absent
  type: list
  elements: str
kept:
  description:
    - Old releases that were not removed because they are mounted or in use, or because the disk
      refused it, each with C(release_id) and C(reason). A later run that finds them unused removes
      them.
  returned: state is present, active or absent
  type: list
  elements: dict
fix:
  description: What to do about a failure.
  returned: failure
  type: str
"""

import errno
import hashlib
import os
import re

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.exceptions import reported
from ..module_utils.release_lease import Lease, locked
from ..module_utils.release_making import FULL, make, wanted
from ..module_utils.release_receiving import (
    bytes_there,
    can_enter,
    expect,
    forget,
    incoming,
    missing,
    wanted_files,
)
from ..module_utils.release_root import ASIDE, Problem, Root
from ..module_utils.release_signature import Signatures
from ..module_utils.release_switching import activate, go_back, take_off
from ..module_utils.release_verifying import verify_made
from ..module_utils.wheel_installer import tool_paths

FREE_NAME = re.compile(
    r"(?!(current|history|releases|wheels)([.]new)?\Z)[A-Za-z0-9][A-Za-z0-9._-]*\Z"
)
VERIFY = {"imports": [], "checks": [], "timeout": 300, "features": []}
SERVES = {"ok": True, "active": True, "pruned": [], "kept": []}
BROKEN = (errno.EROFS, errno.EIO)  # an error of the disk often makes its file system read-only


def complete(params):
    """Return all options in one, with the folders and names that follow from them."""
    login_uid = params["login_uid"] or params["spec"]["login_uid"]
    is_root = os.geteuid() == 0
    params = {**params, **params["spec"]}
    path, named = params["path"], params["release"] != "default"
    wheels = [wheel["sha256"] for wheel in params["wheels"]]
    if params["release_id"] is None:
        text = "\n".join([*sorted(wheels), params["python"]])
        params["release_id"] = hashlib.sha256(text.encode()).hexdigest()[:16] if wheels else ""
    by_hand = {
        "format_version": 1,
        "release": params["release"],
        "id": params["release_id"],
        "group": "by-hand",
        "python": params["python"],
        "wheels": [],
        "dependencies": [],
        "verified": False,
    }
    receives = params["state"] in ("begun", "present")
    root = os.path.join(path, params["release"]) if named else path
    # Without folders of the login user's, Ansible copies what that user has got.
    sends = is_root and login_uid > 0 and can_enter(root, login_uid)
    return {
        **params,
        "login_uid": login_uid if sends else 0,
        "manifest": by_hand if params["manifest"] is None else params["manifest"],
        "root": root,
        "became": is_root or login_uid > 0,  # no other user could do more
        "staging": os.path.join(root, "wheels") if receives else None,
    }


def writable(*paths):
    """Return whether this user can write there, or create the missing folder."""
    for path in paths:
        existing = path
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        if not os.access(existing, os.W_OK | os.X_OK):
            return False
    return True


def look(root, params):
    """Return the state of a release, without changing anything."""
    release_id = params["release_id"]
    manifest = root.manifest(release_id) if release_id else None
    may_write = writable(root.path, root.releases, params["staging"] or root.path)
    intact = (
        manifest is not None
        and wanted(manifest) == wanted(params["manifest"])
        and not root.damage(release_id, True, manifest)
        and Signatures(root).accepts(release_id)
    )
    return {
        "root": root.path,
        "complete": intact,
        "verified": bool(manifest and manifest.get("verified")),
        "serving": root.serving(),
        "there": os.path.isdir(root.path),
        "writable": may_write,
        "user": os.geteuid(),
        "incoming": incoming(params) if params["staging"] else "",
        "for_login": params["login_uid"] > 0,
        "missing": missing(root, params) if params["staging"] else [],
    }


def begin(root, params, check):
    """Return the state of the release, and take the lease if this user changes something."""
    found = look(root, params)
    serves = found["complete"] and found["serving"] == params["release_id"]
    files = [] if found["complete"] else wanted_files(params)
    if serves or not (found["writable"] or params["became"]):
        return {**found, "changed": False, "counter": 0, "took_over": ""}
    lease = Lease(root.path)
    lease.refuse_other(params["controller"])  # at once, although that run may hold the lock
    if params["release_id"]:  # none if the link to the current release is removed
        signature = params["signature"]
        Signatures(root).check_begin(params["statement"], signature, params["release_id"])
    if check:
        return {**found, "changed": False, "counter": 0, "took_over": ""}
    with locked(root):
        serves = root.serving().replace(ASIDE, "")
        if params["replaces"] and serves not in (params["replaces"], params["release_id"]):
            raise Problem(
                "Another run has changed these releases since this run looked.", ["plan-and-see"]
            )
        if not found["complete"]:
            refuse_small_disk(root, params, found["missing"])
        # Of what an earlier run copied, only these files stay on the node.
        wheels = [file["sha256"] for file in files] if params["staging"] else None
        counter, took_over, left = lease.take(
            *(params[name] for name in ("controller", "plan", "release_id", "lease")), wheels
        )
        if params["staging"]:
            others = set(left).difference(wheels)
            forget(*(os.path.join(params["staging"], name) for name in others))
            expect(params, files)
    return {**found, "changed": True, "counter": counter, "took_over": took_over}


def refuse_small_disk(root, params, lacking):
    """Raise if the disk has less free space than a release needs whose `lacking` files are sent."""
    disk = os.statvfs(root.releases)
    free, needed = disk.f_bavail * disk.f_frsize, params["space"]
    if free < needed and params["staging"]:
        needed -= bytes_there(root, params, lacking)
    if free < needed:
        raise Problem(
            f"The disk of {root.path} has {free / 1e6:.0f} MB free, and the release needs"
            f" {needed / 1e6:.0f} MB.",
            ["free-space", root.path],
        )


def end_lease(root, params, check):
    """End the lease of a run that failed."""
    if params["counter"] and not check:
        with locked(root):
            Lease(root.path).end(params["counter"])
    return bool(params["counter"])


def install(root, params, check):
    """Make the release, verify it, and switch to it, as far as it is asked for."""
    release_id, before = params["release_id"], root.serving()
    made = "" if params["whole"] else make(root, params, check)
    result = {
        **SERVES,
        "release_id": release_id,
        "changed": bool(made),
        "made_by": made,
        "active": root.serving() == release_id,  # not if it was damaged: it serves aside now
        "previous": before,
    }
    if params["verify"] and not check:
        about = {**VERIFY, **params["verify"]}
        about.update(known_failures=params["known_failures"], node=params["node"])
        said = verify_made(root[release_id], about)
        verification = {name: said[name] for name in ("ok", "reason", "fix", "output")}
        result["verification"] = {**verification, "release_id": release_id, "damaged": False}
        if not said["ok"]:
            return {**result, "ok": False}
    if params["activate"] and (not check or root.manifest(release_id)):
        switched = activate(root, params, check)
        result.update(switched, active=True, changed=bool(made) or switched["changed"])
    return result


def step(root, params, check):
    """Do what the state asks for and return the result."""
    state = params["state"]
    if state == "query":
        return {"changed": False, **look(root, params)}
    if state == "begun":
        return begin(root, params, check)
    if state == "ended":
        return {"changed": end_lease(root, params, check)}
    if state == "present":
        return install(root, params, check)
    if state == "active":
        about = {**SERVES, "release_id": params["release_id"]}
        return {**about, **activate(root, params, check)}
    return {**SERVES, **(take_off if state == "absent" else go_back)(root, params, check)}


# generated: arguments, by make docs
SPEC = {
    "path": {"type": "path", "default": "/opt/fleetbuild"},
    "release": {"type": "str", "default": "default"},
    "controller": {"type": "str", "default": ""},
    "plan": {"type": "str", "default": ""},
    "replaces": {"type": "str", "default": ""},
    "space": {"type": "int", "default": 0},
    "lease": {"type": "int", "default": 1800},
    "login_uid": {"type": "int", "default": 0},
    "release_id": {"type": "str"},
    "keep": {"type": "int", "default": 2},
    "in_use": {"type": "dict", "default": {}},
    "wheels": {
        "type": "list",
        "elements": "dict",
        "options": {
            "path": {"type": "str", "required": True},
            "file": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "size": {"type": "int"},
            "commands": {"type": "list", "elements": "str"},
        },
        "default": [],
    },
    "installer": {"type": "dict", "default": {}},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "manifest": {"type": "dict"},
    "statement": {"type": "dict", "default": {}},
    "signature": {"type": "str", "default": ""},
    "activate": {"type": "bool", "default": True},
    "verify": {"type": "dict", "default": {}},
    "revoked": {"type": "list", "elements": "str", "default": []},
    "withdraw": {"type": "bool", "default": False},
}
# end of arguments


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {
                "choices": ["query", "begun", "present", "active", "previous", "ended", "absent"],
                "default": "query",
            },
            "counter": {"type": "int", "default": 0},
            "login_uid": {"type": "int", "default": 0},
            "begun": {"type": "dict"},
            "whole": {"type": "bool", "default": False},
            "known_failures": {"type": "list", "elements": "dict", "default": []},
            "node": {"type": "str", "default": "this node"},
            "spec": {
                "type": "dict",
                "apply_defaults": True,
                "options": SPEC,
            },
        },
        supports_check_mode=True,
    )
    os.umask(0o022)  # other users and pods read the files of a release
    with reported(module):
        work(module)


def work(module):
    """Do what the parameters ask for, and answer."""
    params, check = complete(module.params), module.check_mode
    if params["release_id"] and not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z", params["release_id"]):
        module.fail_json(msg="{!r} is not a release id.".format(params["release_id"]))
    if params["state"] in ("present", "active") and not params["release_id"]:
        module.fail_json(msg="spec.release_id is missing, and spec.wheels to name it by.")
    if not FREE_NAME.match(params["release"]):
        module.fail_json(
            msg="spec.release is {}. Choose another name, of letters, digits, dots, dashes and"
            " underscores: current, history, releases and wheels are what {} holds beside"
            " releases.".format(params["release"], params["path"])
        )
    root = Root(os.path.abspath(params["root"]))
    used = [root[params["release_id"]]] if params["release_id"] else []
    used += [params["staging"]] if params["staging"] else []
    if params["staging"] and params["installer"]:
        used += tool_paths(params["path"], params["installer"])
    try:
        root.check(*used, params["path"])
        result = step(root, params, check)
    except Problem as problem:
        module.fail_json(msg=str(problem), fix=problem.fix)
    except OSError as error:
        module.fail_json(msg=failure(root, error), fix=way_out(root, error))
    if not result.get("ok", True):
        said = result["verification"]
        module.fail_json(**dict(result, msg=said["reason"], fix=said["fix"]))
    module.exit_json(**result)


def failure(root, error):
    """Return an error of the system as a sentence."""
    if error.errno in FULL:
        return f"The disk of {root.path} is full ({error.strerror})."
    return f"{error.filename or root.path}: {error.strerror or error}."


def way_out(root, error):
    """Return the fix for an error of the system."""
    if error.errno in FULL:
        return ["free-space", root.path]
    if error.errno in BROKEN:
        return ["unblock-mount", root.path]
    return ["let-write"]


if __name__ == "__main__":
    main()
