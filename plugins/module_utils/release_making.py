"""Make a release: its environment at its final path, its files' record, and its manifest last.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import tempfile

from . import release_files
from .release_lease import changing
from .release_root import Problem, remove
from .release_signature import Signatures

PATIENCE = 3600  # seconds for one step, such as pip on a slow disk
FULL = (errno.ENOSPC, errno.EDQUOT)


def make(root, params, check):
    """Create the release unless it is complete; return whether something changed."""
    release_id, manifest = params["release_id"], params["manifest"]
    signatures = Signatures(root)
    signatures.check_begin(params["statement"], params["signature"], release_id)
    signatures.check_wheels(params["statement"], manifest, params["wheels"])
    with contextlib.ExitStack() as stack:
        if not check:
            lease = changing(root, params, stack)
        there = root.manifest(release_id)
        intact = there is not None and not root.damage(release_id, True)
        if intact and signatures.accepts(release_id):
            if wanted(there) == wanted(manifest):
                return False
            if hashes(there) == hashes(manifest):
                if not check:
                    signatures.keep(release_id, params["statement"], params["signature"])
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
            assemble(root, params)
            remove_staged(params)
            if params["counter"]:
                lease.renew(params["counter"])  # the verification begins
    return True


def assemble(root, params):
    """Create the environment at its final path, and its manifest last."""
    path = root[params["release_id"]]
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
        Signatures(root).keep(params["release_id"], params["statement"], params["signature"])
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


def staged(params, wheel):
    """Return the path that a wheel was copied to."""
    return os.path.join(params["staging"], wheel["sha256"], wheel["file"])


def hashes(manifest):
    """Return the wheels that a manifest names, by hash."""
    return sorted(str(wheel.get("sha256")) for wheel in manifest.get("wheels", []))


def wanted(manifest):
    """Return a manifest without the values that differ between nodes of a group."""
    return {
        key: value for key, value in manifest.items() if key not in ("verified", "files_sha256")
    }
