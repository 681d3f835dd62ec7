"""Sign statements with the operator's SSH key, and check signatures, by ssh-keygen -Y.

In: a file and a key, or an allowed-signers file (ssh-keygen(1)). Out: FILE.sig, or who signed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from fleetbuild.errors import ConfigError, FleetbuildError, UsageError
from fleetbuild.models import Config

NAMESPACE = "provenance@fleetbuild.dev"  # so that a signature for another purpose does not count
_SECONDS = 60  # a key on a token waits for a touch
_KEY = re.compile(r"with (\S+) key (SHA256:\S+)")


class Signer:
    """Signs files with an SSH key: a private key, or the public key of one in ssh-agent."""

    def __init__(self, key: Path) -> None:
        self.key = key

    def sign(self, file: Path, namespace: str = NAMESPACE) -> Path:
        """Write FILE.sig beside a file; return its path."""
        signature = file.with_name(f"{file.name}.sig")
        signature.unlink(missing_ok=True)
        done = _keygen("sign", "-f", str(self.key), "-n", namespace, str(file))
        if done.returncode != 0 or not signature.is_file():
            output = " ".join(done.stderr.split())[-300:]
            raise ConfigError(
                f"Nothing can be signed with signing.key {self.key}: {output or 'no reason given'}",
                "If the key has a passphrase, load it (ssh-add KEY) and name its public key,"
                " KEY.pub; else correct signing.key in fleetbuild.yml.",
            )
        return signature

    def check(self) -> None:
        """Raise ConfigError if nothing can be signed, before a run builds for hours."""
        with tempfile.TemporaryDirectory(prefix="fleetbuild-") as folder:
            file = Path(folder) / "file"
            file.touch()
            self.sign(file)


def signer_of(config: Config, folder: Path) -> Signer | None:
    """Return the signer that fleetbuild.yml names; a relative path begins at `folder`."""
    if config.signing.key is None:
        return None
    return Signer(folder / Path(config.signing.key).expanduser())


class BadSignature(FleetbuildError):
    """A signature is not valid for its file, or the signer is not allowed."""

    exit_code = 7


def check_signature(file: Path, signature: Path, allowed: Path | None) -> str:
    """Return who signed a file; raise BadSignature.

    With an allowed-signers file the signer must be in it. Without one only the key is known.
    """
    if allowed is None:
        done = _keygen("check-novalidate", "-n", NAMESPACE, "-s", str(signature), stdin=file)
        key = _KEY.search(done.stdout)
        if done.returncode != 0 or not key:
            raise BadSignature(f"{signature.name} is not a valid signature of {file.name}.")
        return f"{key[1]} key {key[2]}"
    if not allowed.is_file():
        raise UsageError(f"{allowed} is not a file.", "Name an allowed-signers file.")
    named = _keygen("find-principals", "-f", str(allowed), "-s", str(signature))
    for principal in named.stdout.splitlines() if named.returncode == 0 else ():
        arguments = ("-f", str(allowed), "-I", principal, "-n", NAMESPACE, "-s", str(signature))
        done = _keygen("verify", *arguments, stdin=file)
        if key := _KEY.search(done.stdout) if done.returncode == 0 else None:
            return f"{principal}, {key[1]} key {key[2]}"
    raise BadSignature(
        f"{signature.name} is not a signature of {file.name} by a signer in {allowed}."
    )


def _keygen(
    what: str, *arguments: str, stdin: Path | None = None
) -> subprocess.CompletedProcess[str]:
    # Without a terminal and an askpass program, so that it never waits for a passphrase.
    environment = {**os.environ, "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
    with (stdin or Path(os.devnull)).open("rb") as file:
        try:
            return subprocess.run(
                ["ssh-keygen", "-Y", what, *arguments],
                stdin=file,
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
