"""Verify a release and mark it: in its manifest, and by the program bin/fleetbuild-sanity.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import json
import os
import signal
import time

from . import release_checks, release_files
from .builder.build_folder import with_descendants
from .release_checks import manifest, sanity_script
from .release_root import Root
from .release_signature import Signatures


def try_release(release, about, node):
    """Try a release, and end each process that its code leaves behind."""
    if release_checks.ctypes:  # what loses its parent becomes a child of this process
        release_checks.ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    before = with_descendants(os.getpid())
    result = release_checks.try_release(release, about, node)
    for _ in range(100):  # a process may be stuck in the kernel
        left = set(with_descendants(os.getpid())).difference(before)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(pid), signal.SIGKILL)  # at once, so none forks away
        if not left:
            break
        time.sleep(0.01)
    return result


def verify_made(release, about):
    """Verify a release that this run has made or found whole; mark it, or take the mark away."""
    checks = {name: about[name] for name in about if name != "node"}
    result = try_release(release, checks, about["node"])
    if result["ok"]:
        mark(release, checks, False)
    else:  # what reads the manifest next, such as a probe, must not take it for a verified one
        unmark(release, False)
    return result


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


def damage_of(root, release, said):
    """Return the files that differ from the install's record, or that no allowed signer signed the
    release; empty if there is nothing to say."""
    if not said:
        return "its manifest.json is damaged"
    if not os.path.exists(os.path.join(release, "bin", "python")):
        return "its Python (bin/python) is missing"
    if not Signatures(Root(os.path.abspath(root))).accepts(os.path.basename(release)):
        return "it has no signature of a signer that this node allows"
    return release_files.damage(release, said.get("files_sha256"), True)


def damaged(what):
    """Return the result for a damaged release."""
    return {
        "ok": False,
        "reason": f"Damaged since it was installed: {what}.",
        "fix": ["repair"],
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
