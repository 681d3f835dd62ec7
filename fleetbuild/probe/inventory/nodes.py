"""Turn one host of an inventory into a node.

In: rendered variables, Ansible's settings and secrets. Out: a `Node` with its login.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

from fleetbuild.ansible import Secrets, Settings
from fleetbuild.errors import InventoryError
from fleetbuild.models import Become, Login, Node
from fleetbuild.text import yaml_value

# Ansible's names for each variable; as in Ansible, the last one set counts.
_HOST = ("ansible_host", "ansible_ssh_host")
_PORT = ("ansible_port", "ansible_ssh_port")
_USER = ("ansible_user", "ansible_ssh_user")
_TIMEOUT = ("ansible_timeout", "ansible_ssh_timeout")
_PASSWORD = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
_KEY = ("ansible_private_key_file", "ansible_ssh_private_key_file")
_CHECKING = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
_SSH_ARGS, _COMMON_ARGS = ("ansible_ssh_args",), ("ansible_ssh_common_args",)
_EXTRA_ARGS, _EXECUTABLE = ("ansible_ssh_extra_args",), ("ansible_ssh_executable",)
_BECOME = ("ansible_become",)
_METHOD = ("ansible_become_method",)
_CONNECTION = ("ansible_connection",)
_WINDOWS_SHELLS, _WINDOWS_REMOTING = ("powershell", "cmd"), ("winrm", "psrp")
_SSH_KINDS = ("ssh", "smart", "paramiko", "paramiko_ssh")
_SM = re.compile(r"[1-9][0-9]?\.[0-9]")


def node_of(
    host: str,
    own: Mapping[str, Any],
    *,
    groups: tuple[str, ...] = (),
    settings: Settings | None = None,
    secrets: Secrets | None = None,
) -> Node:
    """Return a node built from its rendered variables and Ansible's settings."""
    variables = _Variables(host, own, settings or {})
    return Node(
        name=host,
        login=_login(variables, secrets or Secrets()),
        groups=groups,
        isa=variables.text("fleetbuild_isa"),
        sms=_sms(variables),
        python=_python(variables),
        builder=variables.flag("fleetbuild_builder") or False,
        skip=variables.flag("fleetbuild_skip") or False,
        packages=variables.texts("fleetbuild_packages") or (),
        variables={**own, "inventory_hostname": host, "group_names": list(groups)},
    )


def _login(variables: _Variables, secrets: Secrets) -> Login:
    kind = variables.text(*_CONNECTION, setting="DEFAULT_TRANSPORT") or "ssh"
    kind = kind.removeprefix("ansible.builtin.")
    password = variables.secret(*_PASSWORD, typed=secrets.ask_pass)
    checking = variables.flag(*_CHECKING, setting="ssh.host_key_checking")
    return Login(
        connection="ssh" if kind in _SSH_KINDS else kind,
        host=variables.text(*_HOST) or variables.host,
        port=variables.port(),
        user=variables.text(*_USER, setting="ssh.remote_user"),
        password=password,
        key_file=variables.text(*_KEY, setting="ssh.private_key_file"),
        ssh_args=variables.words(*_SSH_ARGS, setting="ssh.ssh_args"),
        ssh_common_args=(
            *variables.words(*_COMMON_ARGS, setting="ssh.ssh_common_args"),
            *variables.words(*_EXTRA_ARGS, setting="ssh.ssh_extra_args"),
        ),
        ssh_executable=variables.text(*_EXECUTABLE, setting="ssh.ssh_executable") or "ssh",
        host_key_checking=checking is not False,
        **({"connect_timeout": timeout} if (timeout := variables.timeout()) else {}),
        become=_become(variables, secrets, password),
        is_windows=kind in _WINDOWS_REMOTING or _has_windows_shell(variables),
    )


def _has_windows_shell(variables: _Variables) -> bool:
    """Return whether the inventory names a shell of Windows."""
    shell = variables.text("ansible_shell_type") or ""
    return shell.removeprefix("ansible.builtin.") in _WINDOWS_SHELLS


def _become(
    variables: _Variables, secrets: Secrets, login_password: SecretStr | None
) -> Become | None:
    if not variables.flag(*_BECOME, setting="DEFAULT_BECOME"):
        return None
    method = variables.text(*_METHOD, setting="DEFAULT_BECOME_METHOD") or "sudo"
    method = method.removeprefix("ansible.builtin.")
    passwords = ("ansible_become_password", "ansible_become_pass", f"ansible_{method}_pass")
    return Become(
        method=method,
        user=variables.text(
            "ansible_become_user", f"ansible_{method}_user", setting="DEFAULT_BECOME_USER"
        )
        or "root",
        # As Ansible's prompt says: "BECOME password[defaults to SSH password]".
        password=variables.secret(*passwords, typed=secrets.become_pass)
        or (login_password if secrets.ask_pass else None),
        flags=variables.text(
            "ansible_become_flags", f"ansible_{method}_flags", setting="DEFAULT_BECOME_FLAGS"
        ),
        exe=variables.text(
            "ansible_become_exe", f"ansible_{method}_exe", setting="DEFAULT_BECOME_EXE"
        ),
    )


def _sms(variables: _Variables) -> tuple[str, ...] | None:
    sms = variables.texts("fleetbuild_sms")
    for sm in sms or ():
        if not _SM.fullmatch(sm):
            raise variables.wrong("fleetbuild_sms", sm, 'compute capabilities such as ["8.6"]')
    return sms


def _python(variables: _Variables) -> str | None:
    python = variables.text("fleetbuild_python")
    if python is not None and not re.fullmatch(r"/\S+|[A-Za-z]:\\.+|3\.\d+t?", python):
        raise variables.wrong("fleetbuild_python", python, 'a path or a version such as "3.11"')
    return python


class _Variables:
    """A host's variables, else Ansible's settings, with type checks."""

    def __init__(self, host: str, own: Mapping[str, Any], settings: Settings) -> None:
        self.host = host
        self._own = own
        self._settings = settings

    def _value(self, *names: str, setting: str = "") -> Any:
        for name in reversed(names):
            if (value := self._own.get(name)) is not None:
                if "\0" in str(value):  # no program takes it; the value may be a password
                    raise InventoryError(
                        f"{self.host}: {name} contains a NUL character.",
                        f"Correct {name} of {self.host} in the inventory.",
                    )
                return value
        return self._settings.get(setting)

    def text(self, *names: str, setting: str = "") -> str | None:
        value = self._value(*names, setting=setting)
        if isinstance(value, bool | list | dict):
            raise self.wrong(names[0], value, "a text")
        # An inventory unsets a value of a wider group with an empty text.
        return None if value is None or str(value) == "" else str(value)

    def texts(self, name: str) -> tuple[str, ...] | None:
        value = self._value(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            value = str(value).replace(",", " ").split()
        if value is None:
            return None
        if isinstance(value, list) and all(type(one) in (str, int, float) for one in value):
            return tuple(map(str, value))
        raise self.wrong(name, value, "a list of texts")

    def words(self, *names: str, setting: str = "") -> tuple[str, ...]:
        text = self.text(*names, setting=setting)
        if not text:
            return ()
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            raise self.wrong(names[0], text, f"words as in a shell ({error})") from None

    def secret(self, *names: str, typed: str | None) -> SecretStr | None:
        """Return the password in the inventory, else the one typed for all hosts."""
        value = self._value(*names)
        if isinstance(value, bool | list | dict):
            # The message must not show the value.
            raise InventoryError(f"{self.host}: {names[0]} must be a string.", "Put it in quotes.")
        text = typed if value is None or str(value) == "" else str(value)
        return None if text is None else SecretStr(text)

    def flag(self, *names: str, setting: str = "") -> bool | None:
        value = self._value(*names, setting=setting)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word in ("yes", "on", "true", "t", "y", "1", "1.0"):
            return True
        if word in ("no", "off", "false", "f", "n", "0", "0.0", ""):
            return False
        raise self.wrong(names[0], value, "true or false")

    def port(self) -> int | None:
        value = self.text(*_PORT, setting="ssh.port")
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or not 0 < int(value) < 65536:
            raise self.wrong("ansible_port", value, "a port from 1 to 65535")
        return int(value)

    def timeout(self) -> int | None:
        value = self.text(*_TIMEOUT, setting="ssh.timeout")
        if value is not None and not re.fullmatch("[1-9][0-9]{0,5}", value):
            raise self.wrong("ansible_timeout", value, "a number of seconds, 1 or more")
        return int(value) if value else None

    def wrong(self, name: str, value: Any, expected: str) -> InventoryError:
        many = isinstance(value, list | dict)
        shown = yaml_value(value, 80) if many else repr(str(value)[:80])
        return InventoryError(
            f"{self.host}: {name} is {shown} but must be {expected}.",
            f"Correct {name} of {self.host} in the inventory.",
        )
