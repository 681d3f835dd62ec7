"""Make a release: its environment at its final path, its files' record, and its manifest last.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import json
import os
import re
import zipfile

from . import release_files
from .builder.removal import remove
from .programs import ended
from .release_lease import changing
from .release_receiving import keep_wheels, remove_received, staged, take_in
from .release_root import Problem
from .release_signature import Signatures
from .wheel_installer import NOT_KEPT, forget_uv, install, keep_uv, kept_uv, make_environment

PATIENCE = 3600  # seconds for one step, such as pip on a slow disk
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
FULL = (errno.ENOSPC, errno.EDQUOT)


def make(root, params, check):
    """Create the release unless it is complete; return what made it, or "" if nothing changed."""
    release_id, manifest = params["release_id"], params["manifest"]
    signatures = Signatures(root)
    signatures.check_begin(params["statement"], params["signature"], release_id)
    signatures.check_wheels(params["statement"], manifest, params["wheels"])
    with contextlib.ExitStack() as stack:
        if not check:
            lease = changing(root, params, stack)
        there = root.manifest(release_id)
        intact = there is not None and not root.damage(release_id, True, there)
        if intact and signatures.accepts(release_id):
            if wanted(there) == wanted(manifest):
                return ""
            if hashes(there) == hashes(manifest):
                if not check:
                    signatures.keep(release_id, params["statement"], params["signature"])
                    seal(root[release_id], manifest)
                    remove_received(params)
                return "manifest"
            if root.serves(release_id):
                raise Problem(
                    f"Release {release_id} serves already, with other wheels.",
                    ["other-release-id"],
                )
        made = "venv"
        if not check:
            if root.serves(release_id):
                root.put_aside(release_id)
            made = assemble(root, params)
            keep_wheels(root, params)
            remove_received(params)
            if params["counter"]:
                lease.renew(params["counter"])  # the verification begins
    return made


def assemble(root, params):
    """Create the environment at its final path, and its manifest last; return what made it."""
    path = root[params["release_id"]]
    for wheel in params["wheels"]:
        take_in(root, params, wheel)
    remove(path)  # left by an interrupted run, or damaged
    os.makedirs(path)
    with open(os.path.join(path, release_files.RECORD), "xb"):
        pass  # so that Root.made() knows it
    files = [(staged(params, wheel), wheel["sha256"]) for wheel in params["wheels"]]
    made = "venv"
    try:
        make_environment(params["python"], path, run)
        before = commands(path)
        if files:
            refuse_hooks(path, files)
            made = install(path, files, uv_of(root, params), run)
        refuse_unannounced(params["wheels"], before, commands(path))
        Signatures(root).keep(params["release_id"], params["statement"], params["signature"])
        seal(path, params["manifest"])
    except (Problem, OSError):
        with contextlib.suppress(OSError):
            remove(path)
        raise
    return made


def commands(path):
    """Return the files in bin/ of an environment, each with what it holds or leads to."""
    found = {}
    for name in os.listdir(os.path.join(path, "bin")):
        file = os.path.join(path, "bin", name)
        if os.path.islink(file):
            found[name] = os.readlink(file)
        elif os.path.isfile(file):
            found[name] = release_files.sha256(file)
        elif name != "__pycache__":
            found[name] = "a folder"
    return found


def refuse_hooks(path, files):
    """Raise if a wheel brings a module that each start of this Python imports where it is there.

    Which these are depends on the system, such as apport_python_hook on Debian and Ubuntu, so an
    empty environment is started, and tells what it looked for in its own folder.
    """
    told = run([os.path.join(path, "bin", "python"), "-vv", "-c", ""], ["plan-for-python"])
    place = re.escape(path) + "/lib[^/\n]*/[^/\n]+/site-packages/"
    sought = set(re.findall(rf"^# trying {place}([^./\n]+)", told, re.M))
    for file, _ in files if sought else ():
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                parts = name.split("/")
                inner = parts[2:] if parts[0].endswith(".data") else parts
                if inner and inner[0].split(".")[0] in sought:
                    raise Problem(
                        f"{os.path.basename(file)} brings {name}, which would run at each"
                        " start of this node's Python.",
                        ["leave-package-out"],
                    )


def refuse_unannounced(wheels, before, after):
    """Raise if the install added a command that no wheel announced, or changed one of Python's."""
    if any(wheel.get("commands") is None for wheel in wheels):
        return  # a playbook of one's own need not say
    announced = {name for wheel in wheels for name in wheel["commands"]}
    if "pip" in announced:  # pip gives its own command a name for each version
        announced.update(name for name in after if re.match(r"pip[0-9.]*\Z", name))
    odd = sorted(
        name
        for name in set(before).union(after)
        if name not in announced and before.get(name) != after.get(name)
    )
    if odd:
        raise Problem(
            "The install changed {} in bin/, which no wheel of the release announced.".format(
                ", ".join(odd[:5])
            ),
            ["leave-package-out"],
        )


def uv_of(root, params):
    """Return the path of the uv that the controller sent, now or earlier, or "".

    Raise if it arrived damaged: as a wheel, it is sent again.
    """
    uv = params["installer"]
    if not uv:
        return ""
    folder = params["path"]
    kept = kept_uv(folder, uv)
    if not os.path.exists(kept):
        try:
            take_in(root, params, uv)
            keep_uv(folder, uv, staged(params, uv))
        except NOT_KEPT:  # pip does it
            return ""
    forget_uv(folder, uv)
    return kept


def seal(path, manifest):
    """Record the files, write them to the disk, and only then mark the release as complete."""
    files = release_files.record(path)
    release_files.write(os.path.join(path, release_files.RECORD), files)
    release_files.persist(path)
    manifest = dict(manifest, files_sha256=release_files.digest(files))
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    release_files.write(os.path.join(path, "manifest.json"), text)
    release_files.persist_names(os.path.dirname(path))


def run(command, fix):
    """Run a command in a clean environment; return its output, or raise with the end of it."""
    try:
        code, text = ended(command, ENVIRONMENT, PATIENCE)
    except OSError as error:
        raise Problem(f"{command[0]} does not run: {error.strerror}.", fix) from error
    if code is None:
        raise Problem(
            "{} did not end within {} s.".format(" ".join(command[:4]), PATIENCE), ["unblock"]
        )
    if code != 0:
        lines = [line for line in text.splitlines() if line.strip()]
        for number in FULL:
            if any(os.strerror(number) in line for line in lines):
                raise OSError(number, os.strerror(number))
        numbers = [number for number, line in enumerate(lines) if "error" in line.lower()]
        told = lines[numbers[0] :] if numbers else lines  # uv tells the cause behind the error
        raise Problem("\n".join(told[-3:]) or "{} failed.".format(" ".join(command)), fix)
    return text


def hashes(manifest):
    """Return the wheels that a manifest names, by hash."""
    return sorted(str(wheel.get("sha256")) for wheel in manifest.get("wheels", []))


def wanted(manifest):
    """Return a manifest without the values that differ between nodes of a group."""
    return {
        key: value for key, value in manifest.items() if key not in ("verified", "files_sha256")
    }
