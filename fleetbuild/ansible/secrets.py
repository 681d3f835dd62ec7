"""Passwords for Ansible, and how they are passed: never in argv, a log or a plan.

In: what the user typed or named. Out: arguments for Ansible's programs.
"""

from __future__ import annotations

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


def vault_arguments(secrets: Secrets, private: Path) -> list[str]:
    """Return the vault options of an ansible program; typed passwords go into private files."""
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
    for number, (label, password) in enumerate(secrets.vault_passwords):
        file_name = write_private(private / f"vault-{number}", password)
        arguments += ["--vault-id", f"{label or 'default'}@{file_name}"]
    return arguments


def write_private(path: Path, text: str) -> Path:
    """Write a file that only its owner can ever read."""
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")
    return path
