"""Passwords for Ansible, and how they are passed: never in argv, a log, a plan or a file.

In: what the user typed or named. Out: arguments for Ansible's programs.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass, field
from pathlib import Path

from fleetbuild.errors import UsageError


# Not a pydantic model, because inventories are read before pydantic is loaded.
@dataclass(frozen=True, kw_only=True)
class Secrets:
    """Passwords typed at a terminal, and the files with vault passwords."""

    ask_pass: str | None = field(default=None, repr=False)
    become_pass: str | None = field(default=None, repr=False)
    vault_password_files: tuple[str, ...] = ()
    vault_ids: tuple[str, ...] = ()  # as for Ansible: file, script, label@file
    vault_passwords: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # label, password
    # A path for each typed vault password. It leads to memory of this process, which only this user
    # can open and which ends with the process, however that ends.
    vault_files: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        files = tuple(self._in_memory(password) for _, password in self.vault_passwords)
        object.__setattr__(self, "vault_files", files)

    @property
    def options(self) -> dict[str, tuple[str, ...]]:
        """The vault options to repeat, without a password."""
        typed = tuple(f"{label}@prompt" for label, _ in self.vault_passwords)
        return {
            "vault_password_file": self.vault_password_files,
            "vault_id": (*self.vault_ids, *typed),
        }

    def _in_memory(self, password: str) -> str:
        handle = os.memfd_create("vault")
        os.fchmod(handle, 0o600)  # Ansible would run an executable file
        os.write(handle, password.encode())
        weakref.finalize(self, os.close, handle)
        return f"/proc/{os.getpid()}/fd/{handle}"


def vault_arguments(secrets: Secrets) -> list[str]:
    """Return the vault options of an ansible program. `secrets` must outlive it."""
    arguments: list[str] = []
    for file in secrets.vault_password_files:
        arguments += ["--vault-password-file", file]
    for vault_id in secrets.vault_ids:
        if vault_id.rpartition("@")[2] in ("prompt", "prompt_ask_vault_pass"):
            raise UsageError(
                f"The vault id {vault_id} asks for its password at a terminal.",
                "Give the password in Secrets.vault_passwords, or name a file: LABEL@FILE",
            )
        arguments += ["--vault-id", vault_id]
    for (label, _), file in zip(secrets.vault_passwords, secrets.vault_files, strict=True):
        arguments += ["--vault-id", f"{label or 'default'}@{file}"]
    return arguments


def write_private(path: Path, text: str) -> Path:
    """Write a file that only its owner can ever read."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")
    return path
