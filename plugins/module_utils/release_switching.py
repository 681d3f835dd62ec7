"""Switch to a release or back, in one atomic step, and remove old releases that nothing uses.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import os
import re

from .builder.removal import remove
from .release_lease import changing
from .release_root import ASIDE, Problem
from .release_signature import SIGNERS, Signatures
from .releases_in_use import find_foreign_uses, find_own_uses, remove_unused, try_to_remove


def activate(root, params, check):
    """Switch to the release, then remove old ones."""
    release_id, before = params["release_id"], root.serving()
    previous = before[len(ASIDE) :] if before.startswith(ASIDE) else before
    if not check and root.manifest(release_id) is None:
        raise Problem(
            f"Release {release_id} is not complete in {root.releases}.",
            ["install-first"],
        )
    switched = before != release_id
    if check:
        return {"changed": switched, "previous": previous, "pruned": [], "kept": []}
    pruned, kept = [], []
    if switched or params["counter"] or root.outdated(params["keep"]):
        with contextlib.ExitStack() as stack:
            lease = changing(root, params, stack, renew=False)  # it ends below, before the lock
            if root.manifest(release_id) is None:  # removed while this run waited for the lock
                raise Problem(f"Release {release_id} was removed meanwhile.", ["run"])
            if switched:
                accept(root, params)
            leased = ""
            if params["counter"]:  # as the history, before the switch; the lock stays
                lease.end(params["counter"])
            else:
                leased = lease.leased()
            if switched:
                root.switch(release_id, [*root.history(), release_id])
            outdated = root.outdated(params["keep"], leased)
            pruned, kept = remove_unused(root, outdated, params["in_use"], try_to_remove)
    changed = switched or bool(pruned)
    return {"changed": changed, "previous": previous, "pruned": pruned, "kept": kept}


def accept(root, params):
    """Raise if this node does not accept the release; else let its counter be the lowest one."""
    signatures, statement = Signatures(root), params["statement"]
    signatures.check_switch(statement, params["signature"], params["release_id"])
    signatures.keep(params["release_id"], statement, params["signature"])
    signatures.raise_counter(statement.get("counter"))


def go_back(root, params, check):
    """Switch to the verified release that served before, or to none."""
    with contextlib.ExitStack() as stack:
        if not check:
            lease = changing(root, params, stack)
            # A run that lost this lease, although it lives, must not switch afterwards.
            lease.end(lease.take(params["controller"], "", root.serving())[0])
        return (
            withdraw(root, check)
            if params["withdraw"]
            else switch_back(root, check, params["revoked"])
        )


def withdraw(root, check):
    """Remove the link to the current release."""
    before = root.serving()
    if before and not check:
        root.record()  # the link alone may say that it has served
        os.unlink(root.current)
    return {"changed": bool(before), "release_id": "", "active": False, "previous": before}


def take_off(root, params, check):
    """Remove the link to the current release, and all releases that nothing uses."""
    before = root.serving()
    found = root.made()
    received = [os.path.join(root.path, name) for name in ("wheels", ".incoming")]
    ours = os.path.isfile(os.path.join(root.path, ".lock"))  # others lay out folders like this
    sent = ours and any(map(os.path.isdir, received))  # for a first release that was never made
    result = {"release_id": "", "active": False, "previous": before, "pruned": [], "kept": []}
    result["changed"] = bool(found or before or sent)
    if check or not result["changed"]:
        return result
    if not ours:
        raise Problem(
            f"{root.path} has releases that fleetbuild did not make: {root.path}/.lock is missing.",
            ["name-folder"],
        )
    with contextlib.ExitStack() as stack:
        lease = changing(root, params, stack)
        stack.callback(lease.end, lease.take(params["controller"], "", before)[0])
        in_use, serving = dict(params["in_use"]), root.serving()
        if serving and "current" in in_use:  # a pod mounts the link, or the folder around it
            in_use.setdefault(serving, in_use["current"])
        # A service that was started by the link shows the link alone in its command line.
        places = [root.current, root[serving]] if serving else []
        uses = {**find_foreign_uses(places), **find_own_uses(places)}
        if uses:
            in_use.setdefault(serving, next(iter(uses.values())))
        if serving not in in_use:
            for name in (root.current, os.path.join(root.path, "history")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name)
        pruned, kept = remove_unused(root, sorted(root.made()), in_use)
        if not kept:
            for folder in received:
                remove(folder)
        if not kept and not named_roots(root.path):
            remove(os.path.join(root.path, ".tools"))  # which all names share
    return {**result, "pruned": pruned, "kept": kept}


def named_roots(base):
    """Return the folders of other releases' names below the folder of the default one."""
    names = os.listdir(base)
    return [name for name in names if os.path.isdir(os.path.join(base, name, "releases"))]


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
        if Signatures.required():
            also += f", and signed by a signer in {SIGNERS}"
        raise Problem(
            f"{root.releases} has no earlier release that is verified and undamaged{also}.",
            ["apply-wanted-versions"],
        )
    if not check:
        Signatures(root).raise_counter()  # so that nobody returns to `now` by its old signature
        root.switch(served[-1], root.history())
    wheels = (root.manifest(served[-1]) or {}).get("wheels", [])
    packages = ["{}=={}".format(wheel.get("package"), wheel.get("version")) for wheel in wheels]
    return {"changed": True, "release_id": served[-1], "previous": now, "packages": packages}


def works(root, release_id, revoked):
    """Return whether the release was verified, holds no revoked wheel, is signed if the node
    requires it, and its files have not changed in size and time."""
    manifest = root.manifest(release_id) or {}
    if not manifest.get("verified") or names_of(manifest).intersection(revoked):
        return False
    return Signatures(root).accepts(release_id) and not root.damage(release_id, False, manifest)


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
