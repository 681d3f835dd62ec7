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
    the releases that served, the current one last.
options:
  state:
    description:
      - C(query) returns the state of the release and of the current one, and changes nothing.
      - C(begun) takes the lease of the folder, so that no other controller changes it meanwhile.
        It fails if the disk does not have enough space for the release.
      - C(present) creates the release beside the current one.
      - C(active) switches to the release and removes old ones.
      - C(previous) switches back to the verified release that served before.
      - C(ended) ends the lease of a run that failed. C(active) and C(previous) end it themselves.
    choices: [query, begun, present, active, previous, ended]
    default: query
    type: str
  counter:
    description:
      - What C(begun) returned. A step is refused if another run has taken over the lease since.
        0 for a run without a lease; it is refused while the run of another controller has one.
    type: int
    default: 0
  root: {description: The folder that holds the releases of one name., type: path, required: true}
  release_id: {description: The release's id., type: str, default: ""}
  staging: {description: "The folder that the wheels were copied to, by hash.", type: path}
  # generated: documentation, by make docs
  controller:
    description: Who changes the node, for messages to others. While
      a run changes the releases of a node, runs of other controllers
      are refused there.
    type: str
    default: ''
  plan:
    description: The plan that the release comes from, for messages.
    type: str
    default: ''
  space:
    description: 'Bytes that the release needs while it is made:
      copied wheels, their unpacked files and the environment. With
      less on the disk, nothing is copied.'
    type: int
    default: 0
  lease:
    description: Seconds after each step for which runs of other
      controllers are refused. The copy of all wheels is one step.
      At most a day.
    type: int
    default: 1800
  keep:
    description: How many releases stay on the node. The current
      and the previous release always stay, and so does a release
      that is mounted or in use.
    type: int
    default: 2
  in_use:
    description: Old releases that have to stay, each with the reason,
      such as the pod that mounts it. The node adds the releases
      that it sees mounted or in use.
    type: dict
    default: {}
  wheels:
    description: 'All wheels to install, dependencies included:
      no index is used. Each has C(file) and C(sha256).'
    type: list
    elements: dict
    default: []
  python:
    description: The interpreter that the release is made with,
      on the node.
    type: path
    default: /usr/bin/python3
  manifest:
    description: The content of manifest.json in the release.
    type: dict
    default: {}
  revoked:
    description: 'For a rollback: revoked wheels, by sha256 or as
      name==version. It passes over releases that hold one.'
    type: list
    elements: str
    default: []
  # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: See which release serves
  fleetbuild.core.release:
    root: /opt/fleetbuild
  register: there

- name: Make a release of one wheel
  fleetbuild.core.release:
    state: present
    root: /opt/fleetbuild
    release_id: "2026-11"
    staging: /opt/fleetbuild/wheels
    wheels:
      - file: six-1.17.0-py2.py3-none-any.whl
        sha256: 4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274
    manifest:
      wheels:
        - sha256: 4721f391ed90541fddacab5acf947aa0d3dc7d27b2e1e8eda2be8970586c3274

- name: Switch to it
  fleetbuild.core.release:
    state: active
    root: /opt/fleetbuild
    release_id: "2026-11"

- name: Go back
  fleetbuild.core.release:
    state: previous
    root: /opt/fleetbuild
"""

RETURN = r"""
counter:
  description: The counter of the lease.
  returned: state is begun
  type: int
took_over:
  description: From which dead run the lease was taken, as a sentence. Usually empty.
  returned: state is begun
  type: str
root:
  description: The folder of the releases.
  returned: state is query
  type: str
complete:
  description: Whether the release exists with exactly this manifest and all files as installed.
  returned: state is query
  type: bool
verified:
  description: Whether the release's manifest says that it was verified on this node.
  returned: state is query
  type: bool
serving:
  description: The id of the current release. Empty if no release is current.
  returned: state is query
  type: str
writable:
  description: Whether this user can write there. If not, root is needed.
  returned: state is query
  type: bool
missing:
  description: The wheels that are still to be copied to O(staging).
  returned: state is query
  type: list
  elements: dict
release_id:
  description: The release that serves now.
  returned: state is previous
  type: str
previous:
  description: The release that served before.
  returned: state is active or previous
  type: str
pruned:
  description: The releases that were removed.
  returned: state is active
  type: list
  elements: str
kept:
  description:
    - Old releases that were not removed because they are mounted or in use, each with C(release_id)
      and C(reason). They are removed by a later run that finds them unused.
  returned: state is active
  type: list
  elements: dict
fix:
  description: What to do about a failure.
  returned: failure
  type: str
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

from ..module_utils import release_files
from ..module_utils.release_lease import Lease
from ..module_utils.release_root import ASIDE, Problem, Root, remove
from ..module_utils.releases_in_use import find_uses
from ansible.module_utils.basic import AnsibleModule

PATIENCE = 3600  # seconds for one step, such as pip on a slow disk
FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN = (errno.EROFS, errno.EIO)  # an error of the disk often makes its file system read-only


def writable(*paths):
    """Return whether this user can write there, or create the missing folder."""
    for path in paths:
        existing = path
        while not os.path.lexists(existing):
            existing = os.path.dirname(existing)
        if not os.access(existing, os.W_OK | os.X_OK):
            return False
    return True


@contextlib.contextmanager
def locked(root):
    """Hold the lock of these releases; wait for another run, but not forever."""
    os.makedirs(root.releases, mode=0o755, exist_ok=True)
    root.check()
    path = os.path.join(root.path, ".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(descriptor, "w", encoding="ascii") as lock:
        began = time.monotonic()
        while not taken(lock):
            if time.monotonic() - began > PATIENCE:
                raise Problem(
                    f"Another run has held {path} for {PATIENCE} s.",
                    f"Find out what it waits for (fuser {path}), then run again.",
                )
            time.sleep(0.5)
        yield


def taken(lock):
    """Return whether this process holds the lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def staged(params, wheel):
    """Return the path that a wheel was copied to."""
    return os.path.join(params["staging"], wheel["sha256"], wheel["file"])


def look(root, params):
    """Return the state of a release, without changing anything."""
    release_id = params["release_id"]
    manifest = root.manifest(release_id) if release_id else None
    return {
        "root": root.path,
        "complete": manifest is not None
        and wanted(manifest) == wanted(params["manifest"])
        and not root.damage(release_id, True),
        "verified": bool(manifest and manifest.get("verified")),
        "serving": root.serving(),
        "writable": writable(root.path, root.releases, params["staging"] or root.path),
        "missing": [
            wheel for wheel in params["wheels"] if not os.path.exists(staged(params, wheel))
        ],
    }


def hashes(manifest):
    """Return the wheels that a manifest names, by hash."""
    return sorted(str(wheel.get("sha256")) for wheel in manifest.get("wheels", []))


def wanted(manifest):
    """Return a manifest without the values that differ between nodes of a group."""
    return {
        key: value for key, value in manifest.items() if key not in ("verified", "files_sha256")
    }


def begin(root, params, check):
    """Take the lease, and refuse a disk on which the release does not fit."""
    lease = Lease(root.path)
    lease.refuse_other(params["controller"])  # at once, although that run may hold the lock
    if check:
        return {"changed": False, "counter": 0, "took_over": ""}
    with locked(root):
        refuse_small_disk(root, params["space"])
        left = lease.copied() if params["staging"] else []
        wheels = [wheel["sha256"] for wheel in params["wheels"]] if params["staging"] else None
        counter, took_over = lease.take(
            *(params[name] for name in ("controller", "plan", "release_id", "lease")), wheels
        )
        for sha256 in set(left).difference(wheels or ()):
            shutil.rmtree(os.path.join(params["staging"], sha256), ignore_errors=True)
    return {"changed": True, "counter": counter, "took_over": took_over}


def refuse_small_disk(root, needed):
    """Raise if the disk has less free space than a release needs."""
    disk = os.statvfs(root.releases)
    free = disk.f_bavail * disk.f_frsize
    if free < needed:
        raise Problem(
            f"The disk of {root.path} has {free / 1e6:.0f} MB free, and the release needs"
            f" {needed / 1e6:.0f} MB.",
            f"Free space there (df -h {root.path}) or set another install path; then run again.",
        )


def changing(root, params, stack):
    """Hold the lock of the releases and check that the lease is still this run's."""
    lease = Lease(root.path)
    if not params["counter"]:
        lease.refuse_other(params["controller"])
    stack.enter_context(locked(root))
    if params["counter"]:
        lease.renew(params["counter"])
    else:
        lease.refuse_other(params["controller"])
    return lease


def make(root, params, check):
    """Create the release unless it is complete; return whether something changed."""
    release_id, manifest = params["release_id"], params["manifest"]
    with contextlib.ExitStack() as stack:
        if not check:
            lease = changing(root, params, stack)
        there = root.manifest(release_id)
        if there is not None and not root.damage(release_id, True):
            if wanted(there) == wanted(manifest):
                return False
            if hashes(there) == hashes(manifest):
                if not check:
                    seal(root[release_id], manifest)
                    remove_staged(params)
                return True
            if root.serves(release_id):
                raise Problem(
                    f"Release {release_id} serves already, with other wheels.",
                    "Give the new wheels another release id.",
                )
        if not check:
            if root.serves(release_id):
                root.put_aside(release_id)
            assemble(root[release_id], params)
            remove_staged(params)
            if params["counter"]:
                lease.renew(params["counter"])  # the verification begins
    return True


def assemble(path, params):
    """Create the environment at its final path, and its manifest last."""
    for wheel in params["wheels"]:
        if release_files.sha256(staged(params, wheel)) != wheel["sha256"]:
            os.unlink(staged(params, wheel))
            raise Problem(
                "{} arrived damaged: its sha256 is not the plan's.".format(wheel["file"]),
                "Run again; it is copied again.",
            )
    remove(path)  # left by an interrupted run, or damaged
    python = os.path.join(path, "bin", "python")
    files = [staged(params, wheel) for wheel in params["wheels"]]
    pip = [python, "-I", "-m", "pip", "--isolated", "--no-input", "--disable-pip-version-check"]
    offline = ["install", "--no-index", "--no-deps", "--no-cache-dir", "--force-reinstall"]
    try:
        run([params["python"], "-I", "-m", "venv", path], venv_fix(params["python"]))
        if files:
            run(pip + offline + files, "Plan again: the wheels do not fit this Python.")
        seal(path, params["manifest"])
    except (Problem, OSError):
        shutil.rmtree(path, ignore_errors=True)
        raise


def remove_staged(params):
    """Remove the wheels that were copied for this release."""
    for wheel in params["wheels"]:
        shutil.rmtree(os.path.dirname(staged(params, wheel)), ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(params["staging"])


def seal(path, manifest):
    """Record the files, write them to the disk, and only then mark the release as complete."""
    files = release_files.record(path)
    release_files.write(os.path.join(path, release_files.RECORD), files)
    release_files.persist(path)
    manifest = dict(manifest, files_sha256=release_files.digest(files))
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    release_files.write(os.path.join(path, "manifest.json"), text)
    release_files.persist_names(os.path.dirname(path))


def venv_fix(python):
    """Return the fix if no virtual environment can be created."""
    return f"Install the venv module of {python} (Debian and Ubuntu: its -venv package)."


def run(command, fix):
    """Run a command in a clean environment; if it fails, raise with its last lines."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
    with tempfile.TemporaryFile() as said:
        try:
            child = subprocess.Popen(
                command,
                cwd="/",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise Problem(f"{command[0]} does not run: {error.strerror}.", fix) from error
        try:
            code = child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            end(child)
            raise Problem(
                "{} did not end within {} s.".format(" ".join(command[:4]), PATIENCE),
                "Find out what blocks it, such as the disk, then run again.",
            ) from None
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    if code != 0:
        for number in FULL:
            if any(os.strerror(number) in line for line in lines):
                raise OSError(number, os.strerror(number))
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise Problem("\n".join(errors[-3:]) or "{} failed.".format(" ".join(command)), fix)


def end(child):
    """Kill a program and its children. A process that is stuck in the kernel stays behind."""
    os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)


def activate(root, params, check):
    """Switch to the release, then remove old ones."""
    release_id, before = params["release_id"], root.serving()
    previous = before[len(ASIDE) :] if before.startswith(ASIDE) else before
    if not check and root.manifest(release_id) is None:
        raise Problem(
            f"Release {release_id} is not complete in {root.releases}.",
            "Install it first.",
        )
    switched = before != release_id
    if check:
        return {"changed": switched, "previous": previous, "pruned": [], "kept": []}
    pruned, kept = [], []
    if switched or params["counter"] or root.outdated(params["keep"]):
        with contextlib.ExitStack() as stack:
            lease = changing(root, params, stack)
            if root.manifest(release_id) is None:  # removed while this run waited for the lock
                raise Problem(f"Release {release_id} was removed meanwhile.", "Run again.")
            if switched:
                served = [line for line in root.history() if line != release_id]
                root.switch(release_id, [*served, release_id])
            if params["counter"]:  # its own lease keeps nothing any more
                lease.end(params["counter"])
            outdated = root.outdated(params["keep"], lease.leased())
            pruned, kept = remove_unused(root, outdated, params["in_use"])
    changed = switched or bool(pruned)
    return {"changed": changed, "previous": previous, "pruned": pruned, "kept": kept}


def remove_unused(root, outdated, in_use):
    """Remove old releases, except those in use; return the removed and the kept ones."""
    uses = {root[name]: reason for name, reason in in_use.items()}
    uses.update(find_uses([root[name] for name in outdated if root[name] not in uses]))
    kept = [
        {"release_id": name, "reason": uses[root[name]]} for name in outdated if root[name] in uses
    ]
    pruned = [name for name in outdated if root[name] not in uses]
    for name in pruned:
        remove(root[name])
    return pruned, kept


def go_back(root, params, check):
    """Switch to the verified release that served before."""
    with contextlib.ExitStack() as stack:
        if not check:
            lease = changing(root, params, stack)
            # A run that lost this lease, although it lives, must not switch afterwards.
            counter = lease.take(params["controller"], "", root.serving())[0]
            stack.callback(lease.end, counter)
        return switch_back(root, check, params["revoked"])


def switch_back(root, check, revoked):
    """Switch to the last release of the history that works and holds no revoked wheel."""
    served = root.history()
    now = root.serving()
    while served and served[-1] == now:
        served.pop()
    while served and not works(root, served[-1], revoked):
        served.pop()
    if not served:
        also = ", and without a revoked wheel" if revoked else ""
        raise Problem(
            f"{root.releases} has no earlier release that is verified and undamaged{also}.",
            "Apply a plan with the versions that you want.",
        )
    if not check:
        root.switch(served[-1], served)
    return {"changed": True, "release_id": served[-1], "previous": now}


def works(root, release_id, revoked):
    """Return whether the release was verified, holds no revoked wheel, and its files have not
    changed in size and time."""
    manifest = root.manifest(release_id) or {}
    if not manifest.get("verified") or names_of(manifest).intersection(revoked):
        return False
    return not root.damage(release_id, False)


def names_of(manifest):
    """Return the hashes of a release's wheels, and their versions as name==version."""
    wheels = manifest.get("wheels", [])
    texts = ["{}=={}".format(wheel.get("package"), wheel.get("version")) for wheel in wheels]
    found = {str(wheel.get("sha256")) for wheel in wheels}
    for text in texts + manifest.get("dependencies", []):
        name, version = str(text).partition("==")[::2]
        name = re.sub(r"[-_.]+", "-", name).lower()
        found.update((f"{name}=={version}", "{}=={}".format(name, version.partition("+")[0])))
    return found


def end_lease(root, params, check):
    """End the lease of a run that failed."""
    if params["counter"] and not check:
        with locked(root):
            Lease(root.path).end(params["counter"])
    return bool(params["counter"])


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {
                "choices": ["query", "begun", "present", "active", "previous", "ended"],
                "default": "query",
            },
            "counter": {"type": "int", "default": 0},
            "root": {"type": "path", "required": True},
            "release_id": {"type": "str", "default": ""},
            "staging": {"type": "path"},
            # generated: arguments, by make docs
            "controller": {"type": "str", "default": ""},
            "plan": {"type": "str", "default": ""},
            "space": {"type": "int", "default": 0},
            "lease": {"type": "int", "default": 1800},
            "keep": {"type": "int", "default": 2},
            "in_use": {"type": "dict", "default": {}},
            "wheels": {"type": "list", "elements": "dict", "default": []},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "manifest": {"type": "dict", "default": {}},
            "revoked": {"type": "list", "elements": "str", "default": []},
            # end of arguments
        },
        required_if=[
            ("state", "begun", ("release_id",)),
            ("state", "present", ("release_id", "staging", "python")),
            ("state", "active", ("release_id",)),
        ],
        supports_check_mode=True,
    )
    os.umask(0o022)  # other users and pods read the files of a release
    params, check = module.params, module.check_mode
    if params["release_id"] and not re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z", params["release_id"]):
        module.fail_json(msg="{!r} is not a release id.".format(params["release_id"]))
    root = Root(os.path.abspath(params["root"]))
    used = [root[params["release_id"]]] if params["release_id"] else []
    try:
        root.check(*used, *filter(None, [params["staging"]]))
        if params["state"] == "query":
            module.exit_json(changed=False, **look(root, params))
        if params["state"] == "begun":
            module.exit_json(**begin(root, params, check))
        if params["state"] == "ended":
            module.exit_json(changed=end_lease(root, params, check))
        if params["state"] == "present":
            module.exit_json(changed=make(root, params, check))
        if params["state"] == "active":
            module.exit_json(**activate(root, params, check))
        module.exit_json(**go_back(root, params, check))
    except Problem as problem:
        module.fail_json(msg=str(problem), fix=problem.fix)
    except OSError as error:
        module.fail_json(msg=failure(root, error), fix=way_out(root, error))


def failure(root, error):
    """Return an error of the system as a sentence."""
    if error.errno in FULL:
        return f"The disk of {root.path} is full ({error.strerror})."
    return f"{error.filename or root.path}: {error.strerror or error}."


def way_out(root, error):
    """Return the fix for an error of the system."""
    if error.errno in FULL:
        return f"Free space there (df -h {root.path}) or set another install path; then run again."
    if error.errno in BROKEN:
        return (
            f"Find out why (dmesg, findmnt -T {root.path}), and mount it writable or set another"
            " install path; then run again."
        )
    return "Let the user write there, let Ansible become root, or set another install path."


if __name__ == "__main__":
    main()
