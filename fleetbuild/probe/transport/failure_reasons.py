"""Find out from the messages of OpenSSH, sudo and shells why a node did not answer."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from fleetbuild.models import Login
from fleetbuild.probe.transport.base import Answer, NoAnswer

_LONGEST = 200
_KEY_FIX = (
    "check ansible_user; that the public half is in its authorized_keys; and that a key with a"
    " passphrase is in the SSH agent (ssh-add)"
)
_DEFAULT_ARGS = "-C -o ControlMaster=auto -o ControlPersist=60s"  # Ansible's
_MOST = 4096  # bytes from the end, after any banner of the server


def ssh_problem(complaint: bytes, login: Login) -> NoAnswer | None:
    """Return the error for the last messages of ssh, or None."""
    text = _plain(complaint[-_MOST:])
    for pattern, problem in _SSH:
        if re.search(pattern, text):
            return problem(text, login)
    lines = [line for line in text.splitlines() if line.strip()]
    return NoAnswer(f"ssh failed: {lines[-1][:_LONGEST]}", _try(login)) if lines else None


def unusable_answer(answer: Answer, login: Login) -> NoAnswer:
    """Return the error for an answer without any section."""
    text = _plain(answer.err[-_MOST:] + b"\n" + answer.out[:_MOST])
    for pattern, reason, fix in _NODE:
        if re.search(pattern, text):
            return NoAnswer(reason, fix)
    if answer.code == 127:
        return NoAnswer("it has no POSIX sh", "give the login user a shell")
    return _malformed(answer, text, login)


def _malformed(answer: Answer, text: str, login: Login) -> NoAnswer:
    if answer.code is None or answer.code < 0:
        return NoAnswer("the connection ended before the answer did", _try(login))
    lines = [line for line in text.splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:_LONGEST]}" if lines else ""
    return NoAnswer(
        f"the node returned a malformed result (exit code {answer.code}){last}", _try(login)
    )


def refused(host: str, port: int | None) -> NoAnswer:
    """Return the error for a refused connection."""
    return NoAnswer(
        f"connection refused by {host} port {port or 22}",
        "check that sshd runs there, and on that port",
    )


def no_route(host: str) -> NoAnswer:
    """Return the error for a missing route."""
    return NoAnswer(f"no route to {host}", "check ansible_host, the network and the firewall")


def unknown_name(host: str) -> NoAnswer:
    """Return the error for a name that does not resolve."""
    return NoAnswer(
        f"no address is known for {host}", "set ansible_host, or correct DNS or /etc/hosts"
    )


def timed_out(host: str) -> NoAnswer:
    """Return the error for a connection that timed out."""
    return NoAnswer(
        f"connection to {host} timed out",
        "check that it is up, and that no firewall drops packets; Ansible's timeout (ansible.cfg,"
        " ansible_timeout) and ssh's ConnectTimeout say how long a connection may take",
    )


def login_refused(login: Login, methods: str = "") -> NoAnswer:
    """Return the error for a failed login."""
    user = f" for {login.user}" if login.user else ""
    tried = f" ({methods})" if methods else ""
    if login.password:
        what, fix = "the node does not accept this password", "check ansible_user and the password"
    else:
        what, fix = _refused_key(login)
    return NoAnswer(f"login refused{user}: {what}{tried}", fix)


def _refused_key(login: Login) -> tuple[str, str]:
    """Return why the login by key failed, and what to do."""
    if login.key_file is None:
        offered = "the node accepts no key of ~/.ssh, ssh_config or the SSH agent"
        return offered, f"{_KEY_FIX}, or name it as ansible_ssh_private_key_file; {_try(login)}"
    try:
        with Path(login.key_file).expanduser().open("rb"):
            pass
    except OSError as error:
        what = f"the key {login.key_file} cannot be read: {error.strerror}"
        return what, "correct ansible_ssh_private_key_file, or make that file readable"
    return f"the node does not accept the key {login.key_file}", f"{_KEY_FIX}; {_try(login)}"


def command(login: Login) -> str:
    """Return an ssh command for the user to try, with the arguments that Ansible gives to ssh."""
    ours = () if " ".join(login.ssh_args) == _DEFAULT_ARGS else login.ssh_args
    words = [login.ssh_executable, *ours, *(["-p", str(login.port)] if login.port else [])]
    words += ["-i", login.key_file] if login.key_file else []
    words += login.ssh_common_args
    return shlex.join([*words, f"{login.user}@{login.host}" if login.user else login.host])


def _try(login: Login) -> str:
    return f"try `{command(login)}`"


def _changed(text: str, login: Login) -> NoAnswer:
    entry = re.search(r"^Offending .{1,40} key in ([^\n]{1,300}):\d+", text, re.M)
    file = entry[1] if entry else ""
    usual = str(Path("~/.ssh/known_hosts").expanduser())
    option = f"-f {shlex.quote(file)} " if file and file != usual else ""
    return NoAnswer(
        "HOST KEY CHANGED: it is not the one in known_hosts; another machine may be answering",
        f"find out why; only if the node is really new: ssh-keygen {option}-R {_known_name(login)}",
    )


def _unknown(_: str, login: Login) -> NoAnswer:
    return NoAnswer(
        "its host key is not known",
        f"connect once with `{command(login)}` and compare the fingerprint",
    )


def _known_name(login: Login) -> str:
    port = login.port or 22
    return login.host if port == 22 else shlex.quote(f"[{login.host}]:{port}")


def _denied(text: str, login: Login) -> NoAnswer:
    methods = re.search(r"Permission denied \(([^)]{0,100})\)", text)
    return login_refused(login, methods[1] if methods else "")


def _jump(text: str, _: Login) -> NoAnswer:
    why = re.search(r"open failed: ([^\n]*)", text)
    reason = why[1] if why else "it refused to forward the connection"
    return NoAnswer(f"its jump host cannot reach it: {reason[:_LONGEST]}", "check its ProxyJump")


# In this order: behind a jump host ssh prints several of these, and the first is the cause.
_SSH = (
    (r"HOST IDENTIFICATION HAS CHANGED|host key .{1,200} revoked", _changed),
    (r"Host key verification failed|host key is known for", _unknown),
    (r"open failed: (connect failed|administratively)|stdio forwarding failed", _jump),
    (r"Permission denied|Too many authentication failures", _denied),
    (r"Connection refused", lambda _, login: refused(login.host, login.port)),
    (r"No route to host|Network is unreachable", lambda _, login: no_route(login.host)),
    (r"Could not resolve hostname", lambda _, login: unknown_name(login.host)),
    (r"timed out", lambda _, login: timed_out(login.host)),
    (
        r"Connection closed|Connection reset|kex_exchange_identification|banner exchange",
        lambda _, login: NoAnswer(
            f"{login.host} closed the connection before the login", "read its sshd log"
        ),
    ),
)

# cmd.exe and PowerShell, in English, German, French and Spanish
_UNKNOWN_COMMAND = (
    r"is not recognized as (an internal|the name of)|ist entweder falsch geschrieben oder"
    r"|n.est pas reconnu en tant que|no se reconoce como un comando"
)
_SUDO_FIX = "{} (--ask-become-pass or ansible_become_password), or add a NOPASSWD rule to sudoers"
_NODE = (
    (
        r"incorrect password attempt|Sorry, try again",
        "sudo refused the become password",
        _SUDO_FIX.format("correct the password"),
    ),
    (
        r"sudo: .{0,200}(password is required|no password was)",
        "sudo needs a password",
        _SUDO_FIX.format("give the password"),
    ),
    (
        r"not in the sudoers|is not allowed to (execute|run)|may not run sudo",
        "sudo does not allow it",
        "add a sudoers rule, or set ansible_become: false",
    ),
    (
        r"sudo: .{0,200}(must have a tty|terminal is required)",
        "sudo needs a terminal",
        "take requiretty for this user out of sudoers",
    ),
    (r"sudo: (command )?not found|sudo: No such", "it has no sudo", "set ansible_become: false"),
    (r"doas: ", "doas refused", "add a nopass rule to doas.conf, or set ansible_become: false"),
    (
        r"account is (currently )?not available|nologin|/bin/false",
        "its login user has no shell",
        "use another ansible_user, or give this one a shell",
    ),
    (
        _UNKNOWN_COMMAND,
        "it is a Windows node, and the inventory does not say so",
        "set ansible_shell_type: powershell (or cmd) for this host",
    ),
    (
        r"sh: (command )?not found|[Uu]nknown command|Unrecognized command|Invalid input",
        "it has no POSIX sh",
        "only Linux nodes with sh can be probed",
    ),
)  # fmt: skip


def _plain(output: bytes) -> str:
    text = output.decode(errors="replace").replace("\r", "")
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
