"""Run a build's steps in a container, by podman or docker. Standard library only.

In: an image that is on this node, and the folders that the steps may reach. Out: the process of the
engine, which ends when the steps end. Nothing is pulled, and the container has no network.
"""

import contextlib
import hashlib
import json
import os
import pkgutil
import shutil
import subprocess

from .wheel_inputs import MACHINE, BuildFailed

CONTAINER = "container"  # a level of isolation, beside those in isolation.py
ENGINES = ("podman", "docker")
STEPS = "/fleetbuild"  # inside
# The modules that run inside; the others are needed by them.
SHIPPED = (
    "build_folder", "build_steps", "compilers", "container", "in_container", "input_files",
    "isolation", "memory", "own_pip", "refused_calls", "removal", "source_tree", "stamp_wheel",
    "wheel_build", "wheel_inputs",
)  # fmt: skip
# In memory, as in namespaces. TMPDIR is in the build's folder, on a disk.
SCRATCH = "rw,exec,nosuid,nodev,mode=1777,size=512m"
NOT_STARTED = (125, 126, 127)  # exit codes of both engines if the first program does not run


def find_engine(image):
    """Return the path of the engine that has this image; raise BuildFailed if no engine has it."""
    found = [path for path in map(shutil.which, ENGINES) if path]
    for engine in found:
        if call(engine, "image", "inspect", "--format", "{{.Id}}", image) == 0:
            return engine
    if not found:
        raise BuildFailed(
            "This build runs in a container (build.container), but this node has no podman and no "
            "docker.",
            ["install-podman"],
            MACHINE,
        )
    raise BuildFailed(
        f"The image {image[:100]} is not on this node.",
        ["pull-image", os.path.basename(found[0])],
        MACHINE,
    )


def name_of(folder):
    """Return the name of the container that builds in this folder."""
    return "fleetbuild-" + hashlib.sha256(folder.encode("utf-8")).hexdigest()[:16]


def start(engine, params, folder, mounts, user, deadline, log):  # noqa: PLR0917 (all needed)
    """Start the steps in their container; return the engine's process.

    `mounts` is {path inside: (path here, whether it is writable)}; `user` is (uid, gid) of the
    build's user if this process is root. The steps end when this process does: it holds their
    standard input.
    """
    remove(engine, folder)
    uid, gid = user or (os.geteuid(), os.getegid())
    command = [
        *(engine, "run", "--rm", "--interactive", "--name", name_of(folder)),
        *("--network", "none", "--hostname", "localhost", "--pull", "never"),
        *("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        # SELinux would keep the container from folders that are not labelled for it.
        *("--security-opt", "label=disable", "--log-driver", "none"),
        *("--user", f"{uid}:{gid}", "--workdir", folder, "--entrypoint", params["python"]),
        *(f"--tmpfs={path}:{SCRATCH}" for path in ("/tmp", "/var/tmp")),  # noqa: S108
    ]
    if user is None and os.path.basename(engine) == "podman":
        command += ["--userns", "keep-id"]
    for inside, (path, writable) in mounts.items():
        command.append("--volume={}:{}:{}".format(path, inside, "rw" if writable else "ro"))
    boot = (
        f"import sys; sys.path.insert(0, {STEPS!r}); from builder.in_container import main; main()"
    )
    with open(log, "ab") as errors:  # both write to its end
        child = subprocess.Popen(
            [*command, params["container"], "-I", "-B", "-c", boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            start_new_session=True,
        )
    request = json.dumps({"params": params, "deadline": deadline})
    with contextlib.suppress(BrokenPipeError):  # it ended: its exit code and the log say why
        child.stdin.write(request.encode("ascii") + b"\n")
    return child


def remove(engine, folder):
    """Remove the container of this folder, if one was left."""
    call(engine, "rm", "--force", name_of(folder))


def lay_steps(folder):
    """Write the modules that run inside into a folder."""
    from . import in_container  # noqa: PLC0415 (it imports this module; and so Ansible sends it)

    shutil.rmtree(folder, ignore_errors=True)
    package = os.path.join(folder, "builder")
    os.makedirs(package)
    for name in ("__init__", *SHIPPED):
        text = pkgutil.get_data(in_container.__package__, name + ".py")
        with open(os.path.join(package, name + ".py"), "wb") as file:
            file.write(text)
    for path in (folder, package):
        os.chmod(path, 0o755)


def call(*command):
    """Run an engine's command; return its exit code."""
    nothing = subprocess.DEVNULL
    return subprocess.call(command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=120)
