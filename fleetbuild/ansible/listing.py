"""List an inventory with `ansible-inventory --list`, and turn its errors into sentences.

In: an inventory source, limit and secrets. Out: a `Listing`; InventoryError names what to fix.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from fleetbuild.ansible._runner import Finished, capture, private_dir
from fleetbuild.ansible.broken_inventories import YAML_SUFFIXES, find_mistake, without_values
from fleetbuild.ansible.messages import messages, plain, sentence, without_source
from fleetbuild.ansible.secrets import Secrets, vault_arguments
from fleetbuild.ansible.settings import Settings, effective_settings
from fleetbuild.errors import ConfigAsInventoryError, ConfigError, InventoryError
from fleetbuild.files import is_there

_SMALL = 4096  # bytes; only a small file can be a document without groups by mistake
_LARGE = 256 << 20  # bytes; a million hosts need less
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_KINDS: dict[type, str] = {list: "a list", str: "a text", int: "a number", bool: "a value"}
_UNPARSED = re.compile(r"Unable to parse (/.*) as an inventory source")
_FAILURE = re.compile(
    r"(?:Failed to parse inventory with '(?P<plugin>\w+)' plugin|"
    r"Failed to parse .*? with (?P<older>\w+) plugin): (?P<reason>.*)"
)
_WRAP = re.compile(r"(?<!\n)\n(?!\n|\[[A-Z ]+\]|ERROR)")  # before 2.19, Ansible folds its messages
# A part of a limit that names hosts as fold() does.
_FOLDED = re.compile(
    r"(?:^|(?<=[,:\s]))([!&]*)([\w.-]*)\[(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\]([\w.-]*)(?=[,:\s]|$)",
    re.ASCII,
)
_MOST_FOLDED = 10_000  # hosts; they are one argument, of at most 128 kB
# For static files. The plugin `auto` parses each YAML file to look for the name of another plugin,
# and Ansible cleans the facts of each host, which has none: half of its time for many hosts.
_STATIC = {
    "ANSIBLE_INVENTORY_ENABLED": "host_list,script,yaml,ini,toml",
    "ANSIBLE_INJECT_FACT_VARS": "False",
}


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
    static: bool = False,
    on_start: Callable[[], None] = lambda: None,
) -> Listing:
    """Let Ansible read an inventory; `limit` is an Ansible pattern or @file.

    `static` says that files alone decide the listing: no plugin, vault, or setting of the user's.
    `on_start` is called once Ansible runs, to use the time until it answers.
    """
    if not is_host_list(source) and not is_there(source):
        raise InventoryError(
            f"The inventory {source} does not exist.", "Name an inventory file or directory."
        )
    if not is_host_list(source) and (problem := _endless(source)):
        raise problem
    with ThreadPoolExecutor(1) as aside:
        settings = aside.submit(effective_settings)  # in parallel: both start an ansible program
        ended = _run(source, limit, secrets or Secrets(), on_start, static=static)
        taken = _unfolded(limit, plain(ended.err)) if limit else ""
        if limit and taken != limit:
            ended = _run(source, taken, secrets or Secrets(), static=static)
        if is_there(source) and (problem := _without_groups(Path(source))):
            raise problem
        if ended.code != 0:
            raise _problem(source, ended)
        listing = _listing(json.loads(ended.out), settings.result(), ended.err, static=static)
        listing = replace(listing, warnings=(*listing.warnings, *_by_position(taken)))
    if any("\0" in host for host in listing.hosts):
        raise InventoryError(
            f"The inventory {source} is not a text file.",
            "Name an inventory file, directory or script.",
        )
    if any("=" in host for host in listing.hosts):
        raise _variable_as_host(source, listing)
    if not listing.hosts:
        raise _no_hosts(source, limit, listing.warnings)
    return listing


def _endless(source: str) -> InventoryError | None:
    """Return the error for an inventory that Ansible would read for ever, or cannot read twice."""
    path, fix = Path(source), "Name an inventory file or directory."
    if source.startswith(_STANDARD_INPUT) and not path.is_dir():
        return InventoryError(
            f"The inventory {source} is a pipe or standard input, which Ansible cannot read twice.",
            fix,
        )
    if not path.is_file() and not path.is_dir():
        return InventoryError(f"The inventory {source} is {_kind(path)}, not a file.", fix)
    if path.is_file() and path.stat().st_size > _LARGE and not os.access(path, os.X_OK):
        return InventoryError(
            f"The inventory {source} has {path.stat().st_size >> 20} MB, and Ansible would read it"
            f" for hours. No more than {_LARGE >> 20} MB are read.",
            "Name an inventory file, or an inventory script or plugin that lists the hosts.",
        )
    folders = (
        [path] if path.is_dir() else [path.parent / name for name in ("group_vars", "host_vars")]
    )
    for place, inner, files in chain.from_iterable(
        os.walk(each, followlinks=True) for each in folders
    ):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        for file in (Path(place, name) for name in sorted(files) if not name.startswith(".")):
            if _never_ends(file):
                return InventoryError(
                    f"The inventory {source} contains {file}, which is {_kind(file)}, not a file.",
                    "Move it out of the inventory, or name the files of the inventory alone.",
                )
    return None


def _never_ends(path: Path) -> bool:
    """Return whether reading this may wait or go on for ever. Ansible passes over a socket."""
    try:
        mode = path.stat().st_mode
    except OSError:  # Ansible's warning names it
        return False
    device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    return stat.S_ISFIFO(mode) or (device and path.resolve() != Path(os.devnull))


def _kind(path: Path) -> str:
    return "a pipe" if path.is_fifo() else "a socket" if path.is_socket() else "a device"


def _unfolded(limit: str, output: str) -> str:
    """Return a limit in which names that fleetbuild folds, as n[1-3,7], are patterns of Ansible's.

    Only if they match nothing as they are: to Ansible, GROUP[1-2] is the second and third host.
    """

    def pattern(found: re.Match[str]) -> str:
        sign, head, folded, tail = found.groups()
        ignored = found[0].removeprefix(sign) if tail else head
        if "," not in folded and not re.search(rf"ignoring: {re.escape(ignored)}(?!\S)", output):
            return found[0]
        names: list[str] = []
        for part in folded.split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names += (str(number).zfill(len(first)) for number in numbers[: _MOST_FOLDED + 1])
        if len(names) > _MOST_FOLDED:  # a part of them would be other nodes than the user named
            raise InventoryError(
                f"{found[0]} in --limit names more than {_MOST_FOLDED:,} hosts.",
                "Name a group, or a file with one host per line: --limit @FILE.",
            )
        return f"{sign}~^{re.escape(head)}({'|'.join(names)}){re.escape(tail)}$"

    return _FOLDED.sub(pattern, limit)


def _by_position(limit: str) -> Iterator[str]:
    """Yield a warning for each GROUP[1-2], which may have been meant as hosts' names."""
    for _, group, folded, _ in _FOLDED.findall(limit):
        if "-" not in folded:
            continue  # GROUP[0] is what nobody writes for GROUP0
        yield (
            f"{group}[{folded}] in --limit is hosts of the group {group} by their position, counted"
            f" from 0, as in Ansible. For hosts of such names, separate them by commas:"
            f" {group}{folded.partition('-')[0]},…"
        )


def is_host_list(source: str) -> bool:
    """Return whether the source is a list of hosts (`host1,host2,`) rather than a path."""
    return "," in source and not is_there(source)


def _run(
    source: str,
    limit: str | None,
    secrets: Secrets,
    on_start: Callable[[], None] = lambda: None,
    *,
    static: bool = False,
) -> Finished:
    with private_dir() as private:
        # Without this option Ansible reads group_vars of the working directory, where others may
        # write, and which fleetbuild's playbooks do not have beside them.
        beside = ["--playbook-dir", str(private)]
        arguments = ["-i", source, "--list", *beside, *vault_arguments(secrets)]
        if limit is not None:
            arguments += ["--limit", limit]
        env = {"ANSIBLE_INVENTORY_UNPARSED_FAILED": "True", **(_STATIC if static else {})}
        ended = capture("ansible-inventory", arguments, private=private, env=env, on_start=on_start)
    if static and "plugin" in ended.err:  # a file that no plugin reads, or not these
        return _run(source, limit, secrets)
    return ended


def _listing(document: dict[str, Any], settings: Settings, output: str, *, static: bool) -> Listing:
    hostvars = document.get("_meta", {}).get("hostvars", {})
    if static:  # Ansible adds it where it does not clean facts
        for own in hostvars.values():
            own.pop("ansible_local", None)
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
    """Yield Ansible's warnings. Warnings about an unread file of a folder are in our words."""
    yield from (
        message
        for message in messages(output)
        if not message.removeprefix("* ").startswith(("Failed to parse", "Unable to parse"))
    )
    for file, reasons in _unread(output).items():
        reason = _reason(file, reasons)
        what, fix = _mistake(file, reason) or (f"{file}: {without_values(reason)}", "Correct it.")
        yield f"Some hosts may be missing. {what} {fix}"


def _unread(output: str) -> dict[Path, dict[str, str]]:
    """Return the files that Ansible could not read, and why, by the plugin that tried."""
    files: dict[Path, dict[str, str]] = {}
    reasons: dict[str, str] = {}
    for line in _unfold(output).splitlines():
        if failure := _FAILURE.search(line):
            reasons[failure["plugin"] or failure["older"]] = _without_prefix(failure["reason"])
        elif unparsed := _UNPARSED.search(line):
            name = unparsed[1]  # it may have been folded behind a hyphen, or anywhere
            paths = map(Path, (name, name.replace("- ", "-"), name.replace(" ", "")))
            if path := next((path for path in paths if path.is_file()), None):
                files[path] = reasons
            reasons = {}
    return files


def _reason(path: Path, reasons: dict[str, str]) -> str:
    """Return what the plugin says that is meant to read this file, else the first one."""
    kind = "yaml" if path.suffix in YAML_SUFFIXES else "ini"
    return reasons.get(kind) or next(iter(reasons.values()), "")


def _unfold(output: str) -> str:
    """Return Ansible's output with each message on one line, without lines of the user's files."""
    return _WRAP.sub(" ", without_source(output))


def _mistake(path: Path, reason: str, *, variables: bool = False) -> tuple[str, str] | None:
    """Return the fault of a file and the fix, if it is found."""
    found = find_mistake(path, reason, variables=variables) if path.is_file() else None
    return (f"{found.where(path)}: {found.what}", found.fix) if found else None


def _mistake_in(source: str) -> tuple[str, str] | None:
    """Return a mistake of a file that Ansible did read, though not as it is meant."""
    path = Path(source)
    return _mistake(path, "") if path.is_file() and not _is_script(path) else None


def _walk(document: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield every host below a group, with the path of groups to it."""
    group = document.get(path[-1], {})
    for host in group.get("hosts", []):
        yield path, host
    for child in group.get("children", []):
        yield from _walk(document, (*path, child))


def _problem(source: str, ended: Finished) -> InventoryError:
    output = _unfold(ended.err + ended.out)
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
    broken, reasons = next(iter(_unread(output).items()), (path, {}))
    if not reasons and (mistake := _variables_mistake(path)):
        return InventoryError(*mistake)
    reason = _reason(broken, reasons) or sentence(_errors(_unfold(output)))
    if mistake := _mistake(broken, reason):
        return InventoryError(*mistake)
    if broken.is_dir() and "No inventory was parsed" in reason:
        return InventoryError(
            f"The folder {source} contains no inventory.",
            "Name an inventory file, or a folder that contains one.",
        )
    return InventoryError(
        f"{broken} cannot be read as an inventory: {without_values(reason)}",
        f"Correct it; this command shows the same error: ansible-inventory -i {source} --list",
    )


def _variables_mistake(source: Path) -> tuple[str, str] | None:
    """Return a mistake in group_vars or host_vars, of which Ansible often names no file."""
    folder = source if source.is_dir() else source.parent
    files = sorted(
        file for name in ("group_vars", "host_vars") for file in folder.glob(name + "/**/*")
    )
    found = (
        _mistake(file, "", variables=True)
        for file in files
        if file.suffix in ("", *YAML_SUFFIXES) and file.is_file()
    )
    return next(filter(None, found), None)


def _without_prefix(reason: str) -> str:
    return reason.removeprefix("Failed to parse inventory: ").rstrip(" .")


def _no_program(source: str) -> InventoryError:
    return InventoryError(
        f"{source} looks like an inventory script but is not executable.",
        f"Run: chmod +x {shlex.quote(source)}",
    )


def _script_problem(source: str, output: str) -> InventoryError:
    reasons = next(iter(_unread(output).values()), {})
    reason = reasons.get("script") or sentence(_errors(output))
    complaint = output.partition("Standard error from inventory script:\n")[2].partition("\n")[0]
    reason += f": {complaint}" if complaint else ""
    return InventoryError(f"{source}: {reason}", f"Run `{source} --list` and correct the script.")


def _variable_as_host(source: str, listing: Listing) -> InventoryError:
    """Return the error for a variable in the place of a host, whose name Ansible takes it for."""
    if mistake := _mistake_in(source):
        return InventoryError(*mistake)
    host = next(host for host in listing.hosts if "=" in host)
    return InventoryError(
        f"{source}: {host.partition('=')[0][:60]}=… is a variable where a host should be.",
        "Put it behind the name of a host, or into a section [GROUP:vars].",
    )


def _errors(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if "ERROR" in line) or output


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
    if any("ault" in message for message in messages(_errors(output))):
        return InventoryError(
            f"{source}: {sentence(_errors(output))}", "Correct the vault options."
        )
    return None


def _without_groups(path: Path) -> InventoryError | None:
    """Return the error for a document that holds no groups, such as {}.

    Ansible's INI parser would take `{}` or `---` for the name of a host.
    """
    if not path.is_file() or os.access(path, os.X_OK) or path.stat().st_size > _SMALL:
        return None
    import yaml  # noqa: PLC0415 (only for small files)

    try:
        text = path.read_text(encoding="utf-8").strip()
        if path.suffix not in YAML_SUFFIXES and not text.startswith(("{", "[{", "[]")):
            return None
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):
        return None  # Ansible's answer decides; PyYAML raises any of these for a broken value
    if (isinstance(document, dict) and document) or text.startswith("$ANSIBLE_VAULT"):
        return None
    what = "is empty" if not document else f"contains {_KINDS.get(type(document), 'a value')}"
    return InventoryError(
        f"The inventory {path} {what}, so it names no hosts.",
        "Write groups of hosts: all: {hosts: {NAME: {}}}",
    )


def _no_hosts(source: str, limit: str | None, warnings: tuple[str, ...]) -> InventoryError:
    if is_there(source) and _is_configuration(Path(source)):
        return ConfigAsInventoryError(source)
    if limit is not None:
        return InventoryError(
            f"No host of {source} matches {limit!r}.",
            f"See its hosts and groups with: ansible-inventory -i {source} --graph",
        )
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
    if mistake := _mistake_in(source):
        return InventoryError(*mistake)
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
