"""Sign statements about releases, for nodes that accept only signed ones, and about wheels.

In: the statement (root, manifest, wheels, plan), and the operator's SSH key. Out: the
statement with a counter, and its signature by ssh-keygen -Y.
The nodes check it: plugins/module_utils/release_signature.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from fleetbuild.errors import ConfigError
from fleetbuild.models import Config
from fleetbuild.models._base import Frozen
from fleetbuild.models.stored import SignedRelease

NAMESPACE = "release{}@fleetbuild.dev"  # of a fleet: release.NAME@fleetbuild.dev
_SECONDS = 60  # a key on a token waits for a touch


class Signing(Frozen):
    """Signatures of releases."""

    key: str | None = Field(
        None,
        min_length=1,
        description="the SSH key that signs each release: a private key without a passphrase, or a "
        "public key whose private key is in ssh-agent; default: not signed",
    )
    fleet: str | None = Field(
        None,
        pattern=r"^[a-z0-9][a-z0-9-]{0,40}$",
        description="the fleet that releases are signed for, such as production: a node accepts "
        "them if its file of signers allows the namespace release.production@fleetbuild.dev; "
        "default: any",
    )

    @property
    def signs(self) -> bool:
        """Whether releases are signed. The core asks it for nodes that require a signature."""
        return self.key is not None


class Signer:
    """Signs texts with an SSH key: a private key, or the public key of one in ssh-agent."""

    def __init__(self, key: Path) -> None:
        self.key = key

    def sign(self, text: str, namespace: str) -> str:
        """Return the signature of a text; it counts for this purpose alone."""
        with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
            file = Path(folder) / "text"
            file.write_text(text, encoding="utf-8")
            done = _keygen("-Y", "sign", "-f", str(self.key), "-n", namespace, str(file))
            signature = file.with_name("text.sig")
            if done.returncode == 0 and signature.is_file():
                return signature.read_text(encoding="utf-8")
        output = " ".join(done.stderr.split())[-300:]
        raise ConfigError(
            f"Nothing can be signed with signing.key {self.key}: {output or 'no reason given'}",
            "If the key has a passphrase, load it (ssh-add KEY) and name its public key,"
            " KEY.pub; else correct signing.key in fleetbuild.yml.",
        )


def release_signer(config: Config, folder: Path) -> ReleaseSigner | None:
    """Return the signer that fleetbuild.yml names, tried out; a relative path begins at `folder`.

    Raise ConfigError if nothing can be signed, before a run builds for hours.
    """
    section = config.section(Signing)
    if section.key is None:
        return None
    signer = Signer(folder / Path(section.key).expanduser())
    signer.sign("", "check@fleetbuild.dev")
    return ReleaseSigner(signer, fleet=section.fleet)


class ReleaseSigner:
    """Signs each release once in a run, so that a key on a token is touched once.

    The counter is the time in seconds, because several controllers may sign for a node, and a node
    refuses a counter below the highest that it has seen. A statement for a `fleet` counts only on
    nodes whose file of signers allows it for this fleet.
    """

    def __init__(
        self,
        signer: Signer,
        clock: Callable[[], float] = time.time,
        fleet: str | None = None,
    ) -> None:
        self._signer, self._clock, self._fleet = signer, clock, fleet
        self._signed: dict[str, SignedRelease] = {}

    def __call__(self, about: Mapping[str, Any]) -> SignedRelease:
        """Return the signed statement; raise ConfigError if nothing can be signed."""
        key = text_of(about)
        if key not in self._signed:
            self._signed[key] = self._sign({**about, "counter": int(self._clock())})
        return self._signed[key]

    def text(self, text: str, purpose: str) -> str:
        """Return the signature of a text; it counts for this purpose alone."""
        return self._signer.sign(text, purpose)

    def _sign(self, statement: dict[str, Any]) -> SignedRelease:
        if self._fleet:
            statement["fleet"] = self._fleet
        namespace = NAMESPACE.format(f".{self._fleet}" if self._fleet else "")
        return SignedRelease(statement, self._signer.sign(text_of(statement), namespace))


def text_of(statement: Mapping[str, Any]) -> str:
    """Return the text that is signed: JSON in its one canonical form."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"))


def verify(text: bytes, signature: Path, key: Path, namespace: str) -> str:
    """Return why the signature of a text is not this key's; empty if it is."""
    with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
        public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
        allowed = Path(folder) / "allowed"
        try:
            allowed.write_text(f"key {public.read_text(encoding='ascii')}", encoding="ascii")
        except (OSError, UnicodeError) as error:
            return f"{public} cannot be read: {getattr(error, 'strerror', None) or error}."
        about = ("-f", str(allowed), "-I", "key", "-n", namespace, "-s", str(signature))
        done = _keygen("-Y", "verify", *about, given=text.decode("utf-8", "replace"))
    return "" if done.returncode == 0 else " ".join(done.stderr.split())[-300:] or "no reason given"


def _keygen(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    # Without a terminal and an askpass program, so that it never waits for a passphrase.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments],
            input=given or "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env=environment,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise ConfigError(
            "Signatures need the program ssh-keygen.", "Install the package openssh-client."
        ) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"ssh-keygen did not answer within {_SECONDS} s.",
            "If the key is on a token, touch it when it blinks; then run this again.",
        ) from None
