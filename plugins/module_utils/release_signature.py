"""Signatures of releases: which releases a node accepts if its administrator has named signers.

If /etc/fleetbuild/allowed_signers exists (see ALLOWED SIGNERS in ssh-keygen(1)), a node makes a
release and switches to it only with a signed statement: its folder, its manifest, the hashes of all
its wheels, its plan, and a counter, which never falls. A rollback needs no new signature: the
release keeps its statement, whose signer must be allowed. A statement for a fleet has the namespace
of this fleet, which the file must allow for the signer.
Without that file nothing is checked.

Standard library only, Python 3.6 or newer.
"""

import json
import os
import re
import stat
import subprocess
import tempfile

from . import release_files
from .release_root import Problem

SIGNERS = "/etc/fleetbuild/allowed_signers"
OWNER = 0  # the only user who may write that file
# A signature for another purpose does not count, nor one for another fleet: the file of signers
# says for which fleets each may sign.
NAMESPACE = "release{}@fleetbuild.dev"
FLEET = re.compile(r"[a-z0-9][a-z0-9-]{0,40}\Z")
STATEMENT = "manifest.json.signed"  # in a release; its signature has .sig after the name
COUNTER = ".signed"  # beside the releases: the highest counter so far
SECONDS = 60
# Values of a manifest that differ between nodes, or that the node itself writes.
_OWN = ("python", "verified", "files_sha256")


class Signatures:
    """The signed statements about the releases in a folder."""

    def __init__(self, root):
        self._root = root

    @staticmethod
    def required():
        """Return whether this node has a file of allowed signers; raise if others can write it."""
        try:
            os.lstat(SIGNERS)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise Problem(
                f"This node may require signed releases, but {SIGNERS} cannot be read:"
                f" {error.strerror}.",
                ["let-read", os.path.dirname(SIGNERS)],
            ) from error
        file = os.path.realpath(SIGNERS)
        for path in (os.path.dirname(SIGNERS), os.path.dirname(file), file):
            found = os.stat(path)
            if found.st_uid != OWNER or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Problem(
                    f"{path} can be written by other users than root, so it cannot say who signs"
                    " releases.",
                    ["take-signers", path],
                )
        return True

    def check_begin(self, statement, signature, release_id):
        """Raise if this node does not accept the release; `statement` may be about another one."""
        if not self.required():
            return
        if not signature:
            raise Problem(
                f"This node accepts only signed releases ({SIGNERS}), and this one is not signed.",
                ["name-signing-key"],
            )
        refusal = _refusal(statement, text_of(statement), signature)
        if refusal:
            raise Problem(
                f"This node accepts only releases of the signers in {SIGNERS}. {refusal}",
                ["sign-with-allowed"],
            )
        self._check_about(statement, release_id)
        highest = self._highest()
        if not isinstance(statement.get("counter"), int) or statement["counter"] < highest:
            raise Problem(
                f"This signature of release {release_id} is too old: its counter is"
                f" {statement.get('counter')}, and this node has seen {highest}.",
                ["sign-again-or-roll-back"],
            )

    def check_wheels(self, statement, manifest, wheels):
        """Raise if a statement that was checked does not name these wheels and this manifest."""
        if not self.required():
            return
        hashes = sorted(wheel["sha256"] for wheel in wheels)
        if _signed(manifest) != statement.get("manifest") or hashes != _hashes(statement):
            raise Problem(
                f"The signature of release {manifest.get('id')} is for other wheels or another"
                " manifest.",
                ["apply-own-state"],
            )

    def check_switch(self, statement, signature, release_id):
        """Raise if the release on this node is not the one that was signed."""
        self.check_begin(statement, signature, release_id)
        if not self.required():
            return
        made_from = self._kept(release_id)
        same = made_from is not None and _hashes(made_from) == _hashes(statement)
        if not same or _signed(self._root.manifest(release_id)) != statement["manifest"]:
            raise Problem(
                f"Release {release_id} on this node was not made from signed wheels, or not from"
                " these.",
                ["make-again"],
            )

    def accepts(self, release_id):
        """Return whether the statement that a release keeps is valid, or none is required."""
        if not self.required():
            return True
        kept, manifest = self._kept(release_id), self._root.manifest(release_id)
        return bool(kept and manifest) and kept.get("manifest") == _signed(manifest)

    def keep(self, release_id, statement, signature):
        """Write the statement into the release, if this node requires it."""
        if self.required():
            path = os.path.join(self._root[release_id], STATEMENT)
            release_files.write(path + ".sig", signature)
            release_files.write(path, text_of(statement))
            if self._root.serves(release_id):  # signed again, and no switch follows
                self.raise_counter(statement.get("counter"))

    def raise_counter(self, counter=None):
        """Accept no statement below this counter any more; by default none that was used so far."""
        if self.required():
            value = self._highest() + 1 if counter is None else counter
            release_files.write(os.path.join(self._root.path, COUNTER), f"{value}\n")

    def _check_about(self, statement, release_id):
        manifest, path = statement.get("manifest"), str(statement.get("root"))
        path = os.path.abspath(os.path.expanduser(path))
        if path != self._root.path or not isinstance(manifest, dict):
            raise Problem(
                f"This signature is for the releases in {path}, and not in {self._root.path}.",
                ["sign-again"],
            )
        if manifest.get("id") != release_id:
            raise Problem(
                f"This signature is for release {manifest.get('id')}, and not for {release_id}.",
                ["sign-again"],
            )

    def _highest(self):
        path = os.path.join(self._root.path, COUNTER)
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read(100))
        except FileNotFoundError:
            return 0
        except ValueError:
            raise Problem(
                f"{path} holds no number, so this node does not know which signatures are too old.",
                ["write-counter", path],
            ) from None

    def _kept(self, release_id):
        """Return the statement in a release if its signature is still valid, else None."""
        path = os.path.join(self._root[release_id], STATEMENT)
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(path + ".sig", encoding="utf-8") as file:
                signature = file.read()
            statement = json.loads(text)
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(statement, dict) or _refusal(statement, text, signature):
            return None
        try:
            self._check_about(statement, release_id)
        except Problem:
            return None
        return statement


def text_of(statement):
    """Return the text that is signed: JSON in its one canonical form."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"))


def _signed(manifest):
    """Return the part of a manifest that is the same on all nodes of a group."""
    return {key: value for key, value in (manifest or {}).items() if key not in _OWN}


def _hashes(statement):
    wheels = statement.get("wheels")
    return sorted(map(str, wheels.values())) if isinstance(wheels, dict) else []


def namespace_of(statement):
    """Return the namespace of the fleet that a statement is for."""
    fleet = statement.get("fleet")
    return NAMESPACE.format(f".{fleet}" if FLEET.match(str(fleet or "")) else "")


def _refusal(statement, text, signature):
    """Return why a signature does not count, as a sentence; empty if an allowed signer made it."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "signature")
        with open(path, "w", encoding="utf-8") as file:
            file.write(signature)
        about = ["-f", SIGNERS, "-s", path]
        code, said = _keygen(["find-principals", *about], "")
        if code == 0:
            for principal in said.splitlines():
                verify = ["verify", *about, "-I", principal, "-n", namespace_of(statement)]
                code, said = _keygen(verify, text)
                if code == 0:
                    return ""
    why = " ".join(said.split())[-300:].rstrip(".")
    return f"ssh-keygen says: {why or 'no reason'}."


def _keygen(arguments, text):
    """Run ssh-keygen -Y; return its exit code and what it said."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "HOME": "/"}
    try:
        done = subprocess.run(
            ["ssh-keygen", "-Y", *arguments],
            input=text.encode("utf-8"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=environment,
            timeout=SECONDS,
            check=False,
        )
    except OSError as error:
        raise Problem(
            f"This node accepts only signed releases ({SIGNERS}), and ssh-keygen does not run"
            f" there: {error.strerror}.",
            ["install-ssh-keygen"],
        ) from error
    except subprocess.TimeoutExpired:
        raise Problem(
            f"ssh-keygen did not answer within {SECONDS} s.",
            ["run-when-idle"],
        ) from None
    return done.returncode, done.stdout.decode("utf-8", "replace")
