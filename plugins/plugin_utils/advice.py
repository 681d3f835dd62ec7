"""What to do about a failure on a node, in the controller's own words.

In: advice of a node, as the id of a sentence and its values, such as `["free-space", "/opt/x"]`,
and the module's arguments. Out: the sentence, or an empty text if the id is unknown or a value is
not what the sentence may hold. A node chooses which sentence it gets, and never a word in it.
"""

import re

from .replies import Refused, path

# {path}, {number} and {engine} are the node's values, in this order; {python} is the argument.
TABLE = dict(
    line.split(": ", 1)
    for line in """
allow-namespaces: Allow user namespaces there, let Ansible become root there (ansible_become), or let another node build (build.builders).
allow-time: Check the node, or allow more time.
apply-own-state: Apply again from a state directory that nobody else can write.
apply-wanted-versions: Apply a plan with the versions that you want.
build-on-stronger: Build again: the compiler cache keeps finished work. Or build on a stronger machine.
build-with-memory: Build on a node with more memory, add swap, or raise job_memory_gb in the recipe.
correct-package: Correct the package, or the check if it is too strict.
correct-patch: Correct it for this version, or limit its versions in the recipe.
do-not-trust: Do not trust this archive.
free-space: Free space there (df -h {path}) or set another install path; then run again.
get-source: Get the source again.
install-cuda: Install the CUDA toolkit {number} in /usr/local/cuda-{number} on this node, or let another node build.
install-first: Install it first.
install-gcc: Install it; the role toolchain does with toolchain_gccs: ['{number}'].
install-own-venv: Install its venv module (Debian and Ubuntu: its -venv package).
install-patch: Install the package patch on this node.
install-podman: Install podman, or let another node build (build.builders).
install-release: Install it.
install-ssh-keygen: Install it (Debian and Ubuntu: openssh-client; Fedora and RHEL: openssh), version 8.2 or newer.
install-venv: Install the venv module of {python} (Debian and Ubuntu: its -venv package).
leave-package-out: Look into the wheels (fleetbuild audit WHEEL), and leave out the package at fault.
let-read: Let the user of this run read it: chmod -R a+rX {path}
let-write: Let the user write there, let Ansible become root, or set another install path.
make-again: Apply again: the release is then made again.
name-features: Name the target's features in the recipe's environment.
name-folder: Name the folder itself as install.path, or remove the link.
name-signing-key: Name an SSH key of an allowed signer as signing.key in fleetbuild.yml; then plan and apply again.
no-exit: A check must not call exit.
other-release-id: Give the new wheels another release id.
plain-file-name: Give it a plain name in the recipe.
plan: Plan again.
plan-and-see: Plan again, and see what serves there now: fleetbuild plan INVENTORY
plan-for-python: Plan again: the wheels do not fit this Python.
plan-or-install-cuda: Plan again; or install the CUDA toolkit {number} in /usr/local/cuda-{number}.
pull-image: Pull it with {engine} as this user, or plan again if it was replaced by a newer one.
python-for-all: Install for a Python that all users can run (fleetbuild_python), or let builds run in namespaces (build.isolation).
read-auditwheel: Read auditwheel's message in the log: a library is missing, or is newer than the C library allows.
remove-folder: Remove it: rm -rf {path}
remove-folder-as-root: Remove it: sudo rm -rf {path}
repair: Install it again: fleetbuild verify INVENTORY --repair
run: Run again.
run-to-copy: Run again; it is copied again.
run-to-copy-file: Run again; the file is copied again.
run-when-idle: Run again when the node is less busy.
run-with-cache: Run again; the compiler cache keeps finished work.
see-log: See the log.
see-log-wheels: See the log; they must be wheels for this Python.
sign-again: Apply again: that signs the release again.
sign-again-or-roll-back: Apply again: that signs the release again. To return to the release before, use: fleetbuild rollback INVENTORY. The counter is the time in seconds, so compare the clocks of the controllers too.
sign-with-allowed: Sign with the key of one of them (signing.key in fleetbuild.yml), or let root add this signer there.
switch-off: Switch that off in the recipe: an environment variable or a patch.
take-away-writing: Check its files, then run: chmod -R go-w {path}
take-ownership: Check its files, then give them to the user of this run (chown -R USER {path}), or set another install path.
take-signers: Check the signers in it, then run: chown root {path}; chmod go-w {path}
try-image: Try the image there, and see whether it has {python}; then plan again.
unblock: Find out what blocks it, such as the disk, then run again.
unblock-lock: Find out what it waits for (fuser {path}), then run again.
unblock-mount: Find out why (dmesg, findmnt -T {path}), and mount it writable or set another install path; then run again.
wait-for-run: Wait for that run, then run again, or let apply wait: --wait. If it is dead, its lease ends in {number} min, or at once with: rm {path}
write-counter: Find out who changed it; then write the highest counter into it, or: rm {path}
""".strip().splitlines()  # noqa: E501 (a sentence is a line)
)
_INSTALL = (
    "apt-get -q -y install --no-install-recommends",
    "dnf -y install",
    "apk add --no-cache",
    "zypper --non-interactive install --no-recommends",
    "install",
)
_PART = re.compile(r"\{[a-z]+\}")  # of a package's name: a version
_HOLE = re.compile(r"\{([a-z]+)\}")
_REMOVES = re.compile(r"\brm .*\{path\}")
_NUMBER = re.compile(r"[0-9]{1,6}([.][0-9]{1,3})?")
_FOUND = re.compile(r"[\w.@+/=-]{0,200}", re.ASCII)  # what a known failure found in an output
_TARGET = re.compile(r"[a-z0-9.-]{1,100}")


def sentence(fix, arguments):
    """Return the sentence of a node's advice, or an empty text."""
    name, *values = fix or [""]
    try:
        if name in TABLE:
            return _filled(TABLE[name], values, arguments)
        return _of_known_failure(name, values, arguments)
    except (ValueError, LookupError, TypeError):
        return ""


def check_packages(reply, arguments):
    """Raise `Refused` if a node names other packages to install than the role's table."""
    families = (arguments.get("packages") or {}).values()
    forms = [name for needs in families for names in needs.values() for name in names]
    known = re.compile("|".join("[a-z0-9.]*".join(map(re.escape, _PART.split(f))) for f in forms))
    wanted = reply.get("needed", []) + reply.get("optional", [])
    begin = reply["command"][: -len(" ".join(["", *wanted])) or None]
    if " ".join([begin, *wanted]) != reply["command"] or begin not in _INSTALL:
        raise Refused("command")
    if not all(map(known.fullmatch, wanted)):
        raise Refused("needed")


def _filled(text, values, arguments):
    holes = [hole for hole in dict.fromkeys(_HOLE.findall(text)) if hole != "python"]
    if len(values) != len(holes):
        raise ValueError
    filling = {hole: _checked(hole, value, arguments) for hole, value in zip(holes, values)}
    if _REMOVES.search(text) and (
        filling["path"] in _folders(arguments) or filling["path"].startswith("/etc/")
    ):
        raise ValueError  # neither all releases nor the signers are removed
    filling["python"] = (arguments.get("spec") or arguments).get("python", "")
    return _HOLE.sub(lambda hole: str(filling[hole.group(1)]), text)


def _checked(hole, value, arguments):
    right = {
        "path": lambda: _ours(value, arguments),
        "number": lambda: _NUMBER.fullmatch(str(value)),
        "engine": lambda: value in ("podman", "docker"),
    }
    if not right[hole]():
        raise ValueError
    return value


def _of_known_failure(name, values, arguments):
    """A sentence of the known failures that the controller sent, by their names."""
    about = arguments.get("verify") or arguments
    (text,) = [row["fix"] for row in about.get("known_failures") or [] if row["name"] == name][:1]
    found, group, isa = values
    if not _FOUND.fullmatch(found):
        raise ValueError
    return text.format(
        "",
        found,
        node=about.get("node", "this node"),
        group=group if _TARGET.fullmatch(group) else "its group",
        isa=isa if _TARGET.fullmatch(isa) else "the wheel's rung",
        sms="the SMs of its wheels",
    )


def _ours(named, arguments):
    """Whether a path is one of the arguments, or below it."""
    path(named)
    folder = str(arguments.get("dir", ""))
    if re.search("/builds/[0-9a-f]{32}$", folder):
        return named.endswith(folder[folder.rindex("/builds/") :])
    return any(f"{named}/".startswith(f"{one}/") for one in _folders(arguments))


def _folders(arguments):
    spec = arguments.get("spec")
    if not spec:
        return ["/etc/fleetbuild"]
    path, release = spec.get("path", "/opt/fleetbuild").rstrip("/"), spec.get("release", "default")
    named = [path, *([f"{path}/{release}"] if release != "default" else [])]
    return [*named, *(f"{folder}/wheels" for folder in named), "/etc/fleetbuild"]
