"""What to do about a failure on a node: only sentences of this table, never a node's own.

In: the advice in a node's reply, and the module's arguments. Out: the same sentence if it is in the
table and names nothing but folders of the arguments; else nothing.
"""

import re

from .replies import path

TABLE = """
A check must not call exit.
Allow user namespaces there, let Ansible become root there (ansible_become), or let another node build (build.builders).
Apply a plan with the versions that you want.
Apply again from a state directory that nobody else can write.
Apply again: that signs the release again.
Apply again: that signs the release again. To return to the release before, use: fleetbuild rollback INVENTORY. The counter is the time in seconds, so compare the clocks of the controllers too.
Apply again: the release is then made again.
Build again: the compiler cache keeps finished work. Or build on a stronger machine.
Build on a node with more memory, add swap, or raise job_memory_gb in the recipe.
Check its files, then run: chmod -R go-w {path}
Check its files, then run: chown -R {number} {path}; or set another install path.
Check the node, or allow more time.
Check the signers in it, then run: chown root {path}; chmod go-w {path}
Correct it for this version, or limit its versions in the recipe.
Correct the package, or the check if it is too strict.
Do not trust this archive.
Find out what blocks it, such as the disk, then run again.
Find out what it waits for (fuser {path}), then run again.
Find out who changed it; then write the highest counter into it, or: rm {path}
Find out why (dmesg, findmnt -T {path}), and mount it writable or set another install path; then run again.
Free space there (df -h {path}) or set another install path; then run again.
Get the source again.
Give it a plain name in the recipe.
Give the new wheels another release id.
Install it again: fleetbuild verify INVENTORY --repair
Install it first.
Install it.
Install it (Debian and Ubuntu: openssh-client; Fedora and RHEL: openssh), version 8.2 or newer.
Install it; the role toolchain does with toolchain_gccs: ['{number}'].
Install its venv module (Debian and Ubuntu: its -venv package).
Install podman, or let another node build (build.builders).
Install the CUDA toolkit {number} in /usr/local/cuda-{number} on this node, or let another node build.
Install the package patch on this node.
Install the venv module of {python} (Debian and Ubuntu: its -venv package).
Let the user of this run read it: chmod -R a+rX {path}
Let the user write there, let Ansible become root, or set another install path.
Look into the wheels (fleetbuild audit WHEEL), and leave out the package at fault.
Name an SSH key of an allowed signer as signing.key in fleetbuild.yml; then plan and apply again.
Name the folder itself as install.path, or remove the link.
Name the target's features in the recipe's environment.
Plan again, and see what serves there now: fleetbuild plan INVENTORY
Plan again.
Plan again: the wheels do not fit this Python.
Plan again; or install the CUDA toolkit {number} in /usr/local/cuda-{number}.
Pull it with {engine} as this user, or plan again if it was replaced by a newer one.
Read auditwheel's message in the log: a library is missing, or is newer than the C library allows.
Remove it: rm -rf {path}
Remove it: sudo rm -rf {path}
Run again when the node is less busy.
Run again.
Run again; it is copied again.
Run again; the compiler cache keeps finished work.
Run again; the file is copied again.
See the log.
See the log; they must be wheels for this Python.
Sign with the key of one of them (signing.key in fleetbuild.yml), or let root add this signer there.
Switch that off in the recipe: an environment variable or a patch.
Try the image there, and see whether it has {python}; then plan again.
Wait for that run, then run again. If it is dead, its lease ends in {number} min, or at once with: rm {path}
""".strip().splitlines()  # noqa: E501 (a sentence is a line)
_HOLE = re.compile(r"\{[^{}]*\}")
_FORMS = {
    "{path}": "(/[^ ;)]*)",
    "{number}": "[0-9]{1,6}([.][0-9]{1,3})?",
    "{engine}": "(?:podman|docker)",
}
_FOUND = r"[A-Za-z0-9_.:+,'/ -]{0,100}"  # what a known failure found in the output


def checked(reply, arguments):
    """Return a reply with its advice emptied if it is not the controller's own."""
    # An empty one stays in the reply: roles read it.
    inner = reply.get("verification")
    if isinstance(inner, dict):
        reply = {**reply, "verification": checked(inner, arguments.get("verify") or {})}
    return {**reply, "fix": known(reply["fix"], arguments)} if "fix" in reply else reply


def known(said, arguments):
    """Return a node's advice if it is the controller's own, else an empty text."""
    python = re.escape(str(arguments.get("python", "")))
    forms = {**_FORMS, "{python}": python}
    for sentence in TABLE:
        fits = _form(sentence, lambda hole: forms[hole]).fullmatch(said)
        paths = [found for found in fits.groups() if found and found[0] == "/"] if fits else []
        if fits and all(_ours(one, arguments) for one in paths):
            return said
    verify = arguments.get("verify")
    failures = (verify if isinstance(verify, dict) else arguments).get("known_failures")
    for failure in failures if isinstance(failures, list) else []:
        if _form(str(failure.get("fix", "")), lambda _: _FOUND).fullmatch(said):
            return said
    return ""


def _form(sentence, form_of):
    between = map(re.escape, _HOLE.split(sentence))
    forms = [*map(form_of, _HOLE.findall(sentence)), ""]
    return re.compile("".join(part + form for part, form in zip(between, forms)))


def _ours(named, arguments):
    """Whether a path is one of the arguments, or below it."""
    try:
        path(named)
    except ValueError:
        return False
    folder = str(arguments.get("dir", ""))
    if re.search("/builds/[0-9a-f]{32}$", folder):
        return named.endswith(folder[folder.rindex("/builds/") :])
    folders = [arguments.get("root"), arguments.get("staging"), "/etc/fleetbuild"]
    return any(f"{named}/".startswith(f"{one}/") for one in folders if one)
