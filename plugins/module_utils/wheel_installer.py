"""Install wheels into an environment without an index, by the controller's uv, or by pip.

uv is sent once; it is kept beside the releases, in a folder that its hash names. The pip of
ensurepip runs from its wheel: to unpack it into each environment costs seconds.

Standard library only, Python 3.6 or newer.
"""

import contextlib
import gzip
import os
import shutil
import time
import zlib

from .builder.own_pip import pip_wheel
from .programs import ended

TOOLS = ".tools"  # beside releases; no release name starts so
OLDEST = 8  # uv installs for Python 3.8 and newer
UNUSED = 30 * 86400  # seconds, after which another version is removed
NOT_KEPT = (OSError, EOFError, zlib.error)  # of a full disk, or a packed file that is damaged


def kept_uv(folder, uv):
    """Return the path at which uv is kept below a folder."""
    return os.path.join(folder, TOOLS, uv["sha256"], "uv")


def tool_paths(folder, uv):
    """Return the paths that nobody else may write, because this user runs the program there."""
    path = kept_uv(folder, uv)
    return [os.path.dirname(os.path.dirname(path)), os.path.dirname(path), path]


def keep_uv(folder, uv, received):
    """Move the uv that was received, and whole, to where it is kept; unpack it if it is packed."""
    path = kept_uv(folder, uv)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    fresh = received
    try:
        if uv["file"].endswith(".gz"):
            # Beside the packed file: the install of another release name has a folder of its own.
            fresh = received[: -len(".gz")]
            with gzip.open(received, "rb") as packed, open(fresh, "wb") as there:
                shutil.copyfileobj(packed, there, 1 << 20)
            os.unlink(received)  # the wheels need its space now
        os.chmod(fresh, 0o755)
        os.replace(fresh, path)
    except NOT_KEPT:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)  # such as on a full disk, which it would keep full
        raise


def forget_uv(folder, uv):
    """Note that this uv is used now, and remove the versions that nobody has used for long.

    Releases of several names share the folder, and each controller may have a version of its own.
    """
    tools, own = os.path.join(folder, TOOLS), uv["sha256"]
    with contextlib.suppress(OSError):  # what stays costs space, and nothing else
        os.utime(os.path.join(tools, own), None)
        for name in os.listdir(tools):
            other = os.path.join(tools, name)
            if name != own and time.time() - os.stat(other).st_mtime > UNUSED:
                shutil.rmtree(other, ignore_errors=True)


def runs(uv):
    """Return whether this machine runs uv."""
    try:
        return ended([uv, "--version"], {"HOME": "/"}, 60)[0] == 0
    except OSError:
        return False


def fits(path):
    """Return whether uv installs for the Python of an environment."""
    folders = os.listdir(os.path.join(path, "lib"))
    minors = [name.partition(".")[2] for name in folders if name.startswith("python3.")]
    return all(minor.rstrip("t").isdigit() and int(minor.rstrip("t")) >= OLDEST for minor in minors)


def install(path, wheels, uv, run):
    """Install wheels, as (file, sha256), into an environment; return the installer's name.

    `run` runs a command with the advice if it fails.
    """
    if uv and fits(path) and runs(uv):
        install_with_uv(path, wheels, uv, run)
        return "uv"
    install_with_pip(path, [wheel[0] for wheel in wheels], run)
    return "pip"


def make_environment(python, path, run):
    """Make an environment without pip, which takes a twentieth of the time."""
    run([python, "-I", "-m", "venv", "--without-pip", path], ["install-venv"])


def install_with_uv(path, wheels, uv, run):
    """Install by uv, whose cache lies in the environment, so that files are linked, not copied."""
    cache = os.path.join(path, ".cache")
    os.makedirs(cache)
    wanted = os.path.join(cache, "wheels.txt")
    lines = [f"{file} --hash=sha256:{sha256}\n" for file, sha256 in wheels]
    with open(wanted, "w", encoding="utf-8") as file:
        file.writelines(lines)
    command = [uv, "pip", "install", "--quiet", "--no-config", "--offline", "--no-index"]
    command += ["--no-deps", "--require-hashes", "--no-installer-metadata", "--compile-bytecode"]
    command += ["--python", os.path.join(path, "bin", "python"), "--cache-dir", cache]
    run([*command, "--requirement", wanted], ["plan-for-python"])
    shutil.rmtree(cache)
    if os.path.exists(os.path.join(path, ".lock")):
        os.unlink(os.path.join(path, ".lock"))  # which uv leaves for everybody to write


def install_with_pip(path, files, run):
    """Install by the pip in the wheel of ensurepip; without one, by a pip in the environment."""
    python = os.path.join(path, "bin", "python")
    wheel = pip_wheel(python)
    if not wheel:
        run([python, "-I", "-m", "ensurepip"], ["install-venv"])
    command = [python, "-I", *([os.path.join(wheel, "pip")] if wheel else ["-m", "pip"])]
    command += ["--isolated", "--no-input", "--disable-pip-version-check", "install"]
    command += ["--no-index", "--no-deps", "--no-cache-dir", "--force-reinstall"]
    run([*command, *files], ["plan-for-python"])
