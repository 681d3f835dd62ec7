"""List an inventory with `ansible-inventory --list`, and reduce its errors to one sentence.

In: an inventory source, limit and secrets. Out: a `Listing`; InventoryError names what to fix.
What Ansible refuses keeps Ansible's words, without values: these may be passwords.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import Finished, capture, private_dir
from fleetbuild.ansible.messages import (
    messages,
    place_in,
    plain,
    sentence,
    without_source,
    without_values,
)
from fleetbuild.ansible.secrets import Secrets, vault_arguments
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.errors import ConfigAsInventoryError, ConfigError, InventoryError
from fleetbuild.files import is_there
from fleetbuild.text import fold
from fleetbuild.workers import Workers

_LARGE = 256 << 20  # bytes; a million hosts need less
_YAML = (".yml", ".yaml", ".json")
_PACKAGES = re.compile(r"requirements[\w.-]*\.txt|pyproject\.toml|uv\.lock|pylock[\w.-]*\.toml")
_FAILURE = re.compile(
    r"(?:\* )?Failed to parse (?:inventory with '(?P<plugin>\w+)' plugin|"
    r".*? with (?P<older>\w+) plugin): (?P<reason>.*)"
)
_WRAP = re.compile(r"(?<!\n)\n(?!\n|\[[A-Z ]+\]|ERROR)")  # before 2.19, Ansible folds its messages
_CAUSED_BY = re.compile(r" Failed to parse inventory with '\w+' plugin\..*")  # it says all again


@dataclass(frozen=True)
class Listing:
    """Hosts in inventory order with their variables (not rendered) and groups."""

    hosts: dict[str, dict[str, Any]]
    groups: dict[str, tuple[str, ...]]
    settings: Settings
    warnings: tuple[str, ...] = ()


def list_inventory(
    source: str,
    *,
    limit: str | None = None,
    secrets: Secrets | None = None,
    on_start: Callable[[], None] = lambda: None,
) -> Listing:
    """Let Ansible read an inventory; `limit` is an Ansible pattern or @file.

    `on_start` is called once Ansible runs, to use the time until it answers.
    """
    if not is_host_list(source):
        _refuse_unreadable(source, Path(source))
    with Workers(1) as aside:
        settings = aside.submit(effective_settings)  # in parallel: both start an ansible program
        ended = _run(source, limit, secrets or Secrets(), on_start)
        if ended.code != 0:
            raise _problem(source, ended)
        listing = _listing(json.loads(ended.out), settings.result(), ended.err)
    for host in listing.hosts:
        _refuse_other_text(source, host)
    if not listing.hosts and limit is not None:
        raise _no_match(source, limit, list_inventory(source, secrets=secrets))
    if not listing.hosts:
        raise _no_hosts(source, listing.warnings)
    return listing


def _refuse_unreadable(source: str, path: Path) -> None:
    fix = "Name an inventory file or directory, or hosts, which end with a comma: web1,"
    if not is_there(source):
        raise InventoryError(f"The inventory {source} does not exist.", fix)
    if not path.is_file() and not path.is_dir():
        what = f"The inventory {source} is neither a file nor a directory."
        raise InventoryError(what, fix)
    for each in _with_variables(path):
        if not each.is_file() and not each.is_dir() and each.exists():
            raise InventoryError(
                f"{each} is a pipe or a device, and Ansible would wait for it.", "Take it away."
            )
    if _PACKAGES.fullmatch(path.name):
        raise InventoryError(
            f"{source} is not an inventory: it lists packages.",
            "Name this file by its option: -r, --lock or --group; an inventory stands by itself.",
        )
    if path.is_file() and path.stat().st_size > _LARGE and not os.access(path, os.X_OK):
        raise InventoryError(
            f"The inventory {source} has {path.stat().st_size >> 20} MB. Ansible would read it for"
            f" hours, so no more than {_LARGE >> 20} MB are read.",
            fix,
        )


def _with_variables(path: Path) -> Iterator[Path]:
    """Yield what Ansible reads of a folder, or of the folders of variables beside a file."""
    beside = [path.parent / "group_vars", path.parent / "host_vars"]
    for folder in [path] if path.is_dir() else beside:
        yield from folder.rglob("*")


def _refuse_other_text(source: str, host: str) -> None:
    """Refuse what Ansible takes for a host in a file of another format, such as `{}` or `a=b`."""
    if "=" not in host and host.isprintable() and any(map(str.isalnum, host)):
        return
    raise InventoryError(
        f"{source}: {plain(host.partition('=')[0])[:60]!r} stands where the name of a host should"
        " be.",
        "Write one host per line, and variables behind it or in a section [GROUP:vars].",
    )


def is_host_list(source: str) -> bool:
    """Return whether the source is a list of hosts (`host1,host2,`) rather than a path."""
    return "," in source and not is_there(source)


def _run(
    source: str,
    limit: str | None,
    secrets: Secrets,
    on_start: Callable[[], None],
) -> Finished:
    with private_dir() as private:
        # Without this option Ansible reads group_vars of the working directory, where others may
        # write, and which fleetbuild's playbooks do not have beside them.
        beside = ["--playbook-dir", str(private)]
        arguments = ["-i", source, "--list", *beside, *vault_arguments(secrets)]
        if limit is not None:
            arguments += ["--limit", limit]
        env = {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "True"}
        return capture("ansible-inventory", arguments, private=private, env=env, on_start=on_start)


def _listing(document: dict[str, Any], settings: Settings, output: str) -> Listing:
    hostvars = document.get("_meta", {}).get("hostvars", {})
    members: dict[str, set[str]] = {}
    order: dict[str, None] = {}
    for path, host in _walk(document, ("all",)):
        order[host] = None
        members.setdefault(host, set()).update(path[1:])
    return Listing(
        hosts={host: hostvars.get(host, {}) for host in order},
        groups={host: tuple(sorted(members[host])) for host in order},
        settings=settings,
        warnings=tuple(_warnings(output)),
    )


def _warnings(output: str) -> Iterator[str]:
    """Yield Ansible's warnings, one for each file of a folder that it could not read."""
    yield from (
        without_values(message)
        for message in messages(output)
        if not message.removeprefix("* ").startswith(("Failed to parse", "Unable to parse"))
    )
    for file, reason in _unread(output).items():
        yield f"Some hosts may be missing. {file}: {reason}. Correct it."


def _unread(output: str) -> dict[str, str]:
    """Return the files that Ansible could not read, and why, with the place that it names."""
    files: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for message in messages(output):
        if failure := _FAILURE.match(message):
            reasons[failure["plugin"] or failure["older"]] = failure["reason"]
        elif reasons and (file := _unparsed(message)):
            file = file.replace("- ", "-")  # where Ansible folds its messages
            files[file] = place_in(output, file) + _reason(file, reasons)
            reasons = {}
    return files


def _unparsed(message: str) -> str:
    """Return the file that Ansible could not parse; empty if the message names none."""
    file = message.partition("Unable to parse /")[2].rpartition(" as an inventory source")[0]
    return f"/{file}" if file else ""


def _reason(file: str, reasons: dict[str, str]) -> str:
    """Return what the plugin says that is meant to read this file, else the first one."""
    kinds = ("auto", "yaml") if file.endswith(_YAML) else ("script", "ini")
    meant = [reasons[kind] for kind in kinds if kind in reasons]
    meant = [reason for reason in meant if "no root 'plugin' key" not in reason]
    reason = next(iter((*meant, *reasons.values())), "no reason given")
    reason = _CAUSED_BY.sub("", reason).removeprefix("Failed to parse inventory: ")
    return without_values(reason).rstrip(" .")


def _walk(document: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every host below a group, with the path of groups to it."""
    group = document.get(path[-1], {})
    for host in group.get("hosts", []):
        yield path, host
    for child in group.get("children", []):
        yield from _walk(document, (*path, child))


def _problem(source: str, ended: Finished) -> InventoryError:
    output = _WRAP.sub(" ", without_source(ended.err + ended.out))
    if "ault" in output and (problem := _vault_problem(source, output)):
        return problem
    if limit := re.search(r"Unable to find limit file b?'?([^'\n]+)", output):
        return InventoryError(
            f"The limit file {limit[1]} does not exist.",
            "--limit @FILE names a file with one host per line.",
        )
    if limit := re.search(r'Limit starting with "@" must be a file.*: b\'(.*)\'', output):
        return InventoryError(
            f"The limit file {limit[1]} is a folder.",
            "--limit @FILE names a file with one host per line.",
        )
    return _unreadable(source, plain(ended.err + ended.out))


def _unreadable(source: str, output: str) -> InventoryError:
    path = Path(source)
    if is_there(path) and not os.access(path, os.R_OK):
        return InventoryError(
            f"{path} cannot be read: permission denied.", "Check its owner and permissions."
        )
    if path.is_file() and _is_script(path):
        return _script_problem(source, output) if os.access(path, os.X_OK) else _no_program(source)
    for file, reason in _unread(output).items():
        return InventoryError(
            f"{file} cannot be read as an inventory: {reason}.",
            f"Correct it; this command shows the same error: ansible-inventory -i {source} --list",
        )
    reason = sentence(_errors(output))
    if path.is_dir() and "No inventory was parsed" in reason:
        return InventoryError(
            f"The folder {source} contains no inventory.",
            "Name an inventory file, or a folder that contains one.",
        )
    return InventoryError(
        f"{source}, or a file of its variables, cannot be read: {without_values(reason)}.",
        f"Correct it; this command shows the same error: ansible-inventory -i {source} --list",
    )


def _no_program(source: str) -> InventoryError:
    return InventoryError(
        f"{source} looks like an inventory script but is not executable.",
        f"Run: chmod +x {shlex.quote(source)}",
    )


def _script_problem(source: str, output: str) -> InventoryError:
    reason = next(iter(_unread(output).values()), "") or sentence(_errors(output))
    complaint = output.partition("Standard error from inventory script:\n")[2].partition("\n")[0]
    reason += f": {complaint}" if complaint else ""
    return InventoryError(f"{source}: {reason}", f"Run `{source} --list` and correct the script.")


def _errors(output: str) -> str:
    """Return Ansible's output from its first error on."""
    start = re.search(r"^\[?ERROR", output, re.MULTILINE)
    return output[start.start() :] if start else output


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4).startswith((b"#!", b"\x7fELF"))


def _vault_problem(source: str, output: str) -> InventoryError | None:
    file = re.search(r"vault password file (\S+) was not found", output)
    if file:
        return InventoryError(
            f"The vault password file {file[1]} does not exist.",
            "Name an existing file with --vault-password-file.",
        )
    if "no vault secrets found" in output or "without vault" in output.lower():
        return InventoryError(
            f"{source} contains vaulted values, but no vault password was given.",
            "Add --vault-password-file or --vault-id.",
        )
    if "ecryption failed" in output or "could not be decrypted" in output.lower():
        return InventoryError(
            f"{source} contains vaulted values that the given vault password does not decrypt.",
            "Name the --vault-password-file or --vault-id that they were encrypted with.",
        )
    if "ault" in sentence(_errors(output)):
        return InventoryError(
            f"{source}: {sentence(_errors(output))}", "Correct the vault options."
        )
    return None


def _no_match(source: str, limit: str, everything: Listing) -> InventoryError:
    groups = fold(group for groups in everything.groups.values() for group in groups)
    return InventoryError(
        f"No host of {source} matches {limit!r}.",
        f"Its groups are {groups}; its hosts are {fold(everything.hosts)}.",
    )


def _no_hosts(source: str, warnings: tuple[str, ...]) -> InventoryError:
    if is_there(source) and _is_configuration(Path(source)):
        return ConfigAsInventoryError(source)
    path = Path(source)
    if path.is_file() and os.access(path, os.X_OK):
        return InventoryError(
            f"{source} is executable, so Ansible runs it as an inventory script, and it printed no"
            " hosts.",
            f"Run `{source} --list` and correct the script; if it is not a script, remove the"
            f" permission: chmod -x {shlex.quote(source)}",
        )
    if path.is_file() and _is_script(path):
        return _no_program(source)
    output = f": {warnings[0]}" if warnings else "."
    return InventoryError(f"{source} names no hosts{output}", "Add hosts below `all`.")


def _is_configuration(path: Path) -> bool:
    """Return whether this file is named fleetbuild.yml, or sets only keys of one."""
    from fleetbuild.config import FILE_NAME, load_config  # noqa: PLC0415 (only without hosts)

    if not path.is_file() or path.name == FILE_NAME:
        return path.is_file()
    try:
        return bool(load_config(path).model_fields_set)
    except ConfigError:
        return False
