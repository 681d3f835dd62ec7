"""The lease of a node's releases: one run at a time changes them, from the copy to the switch.

The file `.lease` beside the releases holds a counter and, while a run changes them, its controller,
plan and release. Each lease increments the counter. A step of a run whose lease another run has
taken over finds another counter, and is refused. A lease lasts as long as the node's own monotonic
clock says, within one boot, so no change of a wall clock ends or prolongs it. Each step renews it
for the time that the run has asked for: the copy of a large release takes longer. The file also
names the wheels that the run copies, so that the next run removes what a dead run copied.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import fcntl
import json
import os
import random
import re
import time

from . import release_files
from .release_root import Problem

NAME = ".lease"
PATIENCE = 3600  # seconds to wait for a run that holds the lock
SECONDS = 1800
LONGEST = 86400
_BOOT = "/proc/sys/kernel/random/boot_id"
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_ENCODER = json.JSONEncoder(sort_keys=True)
_TEXTS = ("controller", "plan", "release_id", "boot")


class Lease:
    """The lease of the releases in a folder. Callers that change it hold the folder's lock."""

    def __init__(self, folder, clock=time.monotonic):
        self.path = os.path.join(folder, NAME)
        self._clock = clock

    def take(self, controller, plan, release_id, seconds=SECONDS, wheels=None):
        """Take the lease; return its counter, a sentence if it was taken from a dead run, and the
        hashes of the wheels that the last run copied, or meant to."""
        before = self._read()
        self._refuse(before, controller)
        # Someone may have removed the file: a run from before that must not find its counter again.
        counter = 1 + (before["counter"] or random.SystemRandom().randrange(1 << 30))
        lease = {
            "counter": counter,
            "controller": controller,
            "plan": plan,
            "release_id": release_id,
            "seconds": min(seconds, LONGEST),
            "wheels": before["wheels"] if wheels is None else wheels,
        }
        self._write(lease)
        if not before["release_id"] or before["controller"] == controller:
            return counter, "", before["wheels"]
        took_over = f"Took over the expired lease of a run of {_who(before)}."
        return counter, took_over, before["wheels"]

    def refuse_other(self, controller):
        """Raise if the run of another controller holds the lease now."""
        self._refuse(self._read(), controller)

    def _refuse(self, found, controller):
        left = self._left(found)
        if left > 0 and found["controller"] != controller:
            raise Problem(
                f"A run of {_who(found)} is changing these releases.",
                ["wait-for-run", int(left // 60) + 1, self.path],
            )

    def renew(self, counter):
        """Let the lease last from now on; raise if another run has taken it."""
        self._write(self._own(counter))

    def end(self, counter):
        """End the lease if it is still this one."""
        found = self._read()
        if found["counter"] == counter:
            kept = {name: found[name] for name in ("counter", "wheels") if found[name]}
            release_files.write(self.path, json.dumps(kept) + "\n")

    def check(self, counter):
        """Raise if another run has taken the lease since."""
        self._own(counter)

    def leased(self):
        """Return the release that a run installs or verifies now, or an empty string."""
        found = self._read()
        return found["release_id"] if self._left(found) > 0 else ""

    def _own(self, counter):
        found = self._read()
        if found["counter"] != counter:
            by = f", of {_who(found)}" if found["release_id"] else ""
            raise Problem(
                f"Another run{by} has changed these releases since this run began.",
                ["plan-and-see"],
            )
        return found

    def _left(self, found):
        """Return the seconds that a lease still lasts; 0 if no run holds it."""
        left = found["until"] - self._clock()
        return left if found["boot"] == _boot() and 0 < left <= found["seconds"] else 0

    def _write(self, lease):
        lease = dict(lease, boot=_boot(), until=self._clock() + lease["seconds"])
        release_files.write(self.path, _ENCODER.encode(lease) + "\n")

    def _read(self):
        try:
            found = json.loads(release_files.read(self.path).decode("utf-8"))
        except (OSError, ValueError, RecursionError):
            found = {}
        found = found if isinstance(found, dict) else {}
        clean = {name: str(found.get(name, ""))[:300] for name in _TEXTS}
        counter, until, seconds = (found.get(name) for name in ("counter", "until", "seconds"))
        clean["counter"] = counter if isinstance(counter, int) else 0
        clean["until"] = until if isinstance(until, (int, float)) else 0
        wheels = found.get("wheels")
        wheels = wheels if isinstance(wheels, list) else []
        clean["wheels"] = [one for one in map(str, wheels) if _SHA256.match(one)]
        usable = isinstance(seconds, (int, float)) and 0 < seconds <= LONGEST
        clean["seconds"] = seconds if usable else SECONDS
        return clean


def _who(found):
    """Return a run's controller and plan for sentences."""
    plan = f" (plan {found['plan']})" if found["plan"] else ""
    return (found["controller"] or "Ansible") + plan


def _boot():
    try:
        with open(_BOOT, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


@contextlib.contextmanager
def locked(root):
    """Hold the lock of these releases; wait for another run, but not forever."""
    release_files.make_folder(root.releases)
    root.check()
    path = os.path.join(root.path, ".lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as lock:
        os.fchmod(descriptor, 0o600)  # whoever can open the file can hold the lock
        began = time.monotonic()
        while not taken(lock):
            if time.monotonic() - began > PATIENCE:
                raise Problem(
                    f"Another run has held {path} for {PATIENCE} s.",
                    ["unblock-lock", path],
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


def changing(root, params, stack, renew=True):
    """Hold the lock of the releases and check that the lease is still this run's; renew it."""
    lease = Lease(root.path)
    if not params["counter"]:
        lease.refuse_other(params["controller"])
    stack.enter_context(locked(root))
    if params["counter"]:
        (lease.renew if renew else lease.check)(params["counter"])
    else:
        lease.refuse_other(params["controller"])
    return lease
