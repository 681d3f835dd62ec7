#!/usr/bin/python
"""Run imports and checks in a release, and say in a sentence why they fail."""

DOCUMENTATION = r"""
module: fleetbuild_verify
short_description: Verify a release by importing and running
description:
  - Runs the release's own python, isolated, in an empty folder and a clean environment, so that
    only the release is seen. A crash of it is seen and named.
options:
  root: {description: Where the releases of this name live., type: path, required: true}
  release_id: {description: The release; the current one where empty., type: str, default: ""}
  imports: {description: Modules to import, type: list, elements: str, default: []}
  checks: {description: Python snippets that must run., type: list, elements: str, default: []}
  timeout: {description: Seconds for all of them together., type: int, default: 300}
  mark: {description: Only write verified into the manifest., type: bool, default: false}
author: The fleetbuild authors
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule

# Runs the steps one by one and says which one it is at, so that a crash can be blamed.
DRIVER = """
import json, sys
for number, step in enumerate(json.load(sys.stdin)):
    print("\\x1e%d" % number, file=sys.stderr, flush=True)
    exec(compile(step, "<%s>" % step.splitlines()[0], "exec"), {"__name__": "fleetbuild_check"})
print("\\x1edone", file=sys.stderr, flush=True)
"""

SIGNALS = {
    signal.SIGILL: (
        "Illegal instruction: the wheel uses instructions that this CPU lacks.",
        "Probe and plan again: the node's CPU flags are not those that the wheel was built for.",
    ),
    signal.SIGSEGV: (
        "Segmentation fault.",
        "Look for a wheel built against other versions of its dependencies, and build it again.",
    ),
    signal.SIGBUS: ("Bus error.", "Look for a damaged or truncated file, and install again."),
    signal.SIGFPE: ("Arithmetic exception.", "See the output; the check itself may be wrong."),
    signal.SIGABRT: ("The process aborted.", "See the output for what it complains about."),
    signal.SIGKILL: (
        "The process was killed, most likely for lack of memory.",
        "Free memory on the node and verify again.",
    ),
}

# What the output says -> (reason, fix); the first that matches. \\1 is what was found.
SIGNS = [
    (
        r"no kernel image is available",
        "No kernel image: the wheel has no code for this GPU's compute capability.",
        "Probe and plan again: the wheel must be built for the SM of every GPU in the node.",
    ),
    (
        r"CUDA driver version is insufficient|driver on your system is too old",
        "The NVIDIA driver is too old for the CUDA version that the wheel was built with.",
        "Update the driver, or pin an older toolkit with `cuda:`.",
    ),
    (
        r"version [`'](GLIBC(?:XX)?_[0-9.]+)' not found",
        "The wheel needs \\1, which this node's libraries do not have.",
        "Build on a node with older libraries: the oldest libc of the group.",
    ),
    (
        r"([\w.+-]+\.so[\w.]*): cannot open shared object file",
        "The shared library \\1 is missing.",
        "Install the package that has \\1, or let the recipe bundle it.",
    ),
    (
        r"Error loading shared library ([^\s:]+)",
        "The shared library \\1 is missing.",
        "Install the package that has \\1, or let the recipe bundle it.",
    ),
    (
        r"undefined symbol: (\S+)|(\S+): symbol not found",
        "ABI mismatch: the symbol \\1 is missing.",
        "Build the wheel again, against the versions that are in this release.",
    ),
    (
        r"compiled using NumPy 1\.x|numpy\.dtype size changed|module compiled against A[BP]I",
        "ABI mismatch: the wheel was built against another NumPy.",
        "Build the wheel again, against the NumPy that is in this release.",
    ),
    (
        r"No module named '?([\w.]+)'?",
        "The module \\1 is not in the release.",
        "Add the package that has it, or correct the recipe's imports.",
    ),
]


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release_id": {"type": "str", "default": ""},
            "imports": {"type": "list", "elements": "str", "default": []},
            "checks": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 300},
            "mark": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    release = find(params["root"], params["release_id"])
    if params["mark"]:
        module.exit_json(changed=mark(release, module.check_mode))
    if not release:
        missing = params["release_id"] or "current"
        reason = "There is no release {} in {}.".format(missing, params["root"])
        module.exit_json(changed=False, ok=False, present=False, reason=reason, fix="Install it.",
                         output="", release_id=params["release_id"])  # fmt: skip
    steps = ["import " + name for name in params["imports"]] + params["checks"]
    module.exit_json(
        changed=False,
        present=True,
        release_id=os.path.basename(release),
        marked=bool(manifest(release).get("verified")),
        writable=os.access(release, os.W_OK),
        **run(os.path.join(release, "bin", "python"), steps, params["timeout"]),
    )


def find(root, release_id):
    """The folder of a complete release, else None. Seen as its final path, without symlinks."""
    path = (
        os.path.join(root, "releases", release_id) if release_id else os.path.join(root, "current")
    )
    path = os.path.realpath(path)
    return path if os.path.exists(os.path.join(path, "manifest.json")) else None


def manifest(release):
    """What manifest.json says."""
    with open(os.path.join(release, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def mark(release, check):
    """Write verified into the manifest, in one atomic step."""
    found = manifest(release)
    if found.get("verified"):
        return False
    if not check:
        path = os.path.join(release, "manifest.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            os.chmod(path + ".new", 0o644)
            json.dump(dict(found, verified=True), file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".new", path)
    return True


def run(python, steps, timeout):
    """Run the steps in a child: {ok, reason, fix, output}."""
    home = tempfile.mkdtemp(prefix="fleetbuild-verify-")
    clean = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home,
        "TMPDIR": home,
    }
    child = subprocess.Popen(
        [python, "-I", "-c", DRIVER],
        cwd=home,
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        raw, _ = child.communicate(json.dumps(steps).encode("utf-8"), timeout=timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raw, _ = child.communicate()
        code = None
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return judge(raw.decode("utf-8", "replace"), code, steps, timeout)


def judge(text, code, steps, timeout):
    """What the child's end and output mean."""
    at = re.findall("\x1e([0-9]+)\n", text)
    finished = "\x1edone" in text
    output = re.sub("\x1e[0-9a-z]+\n", "", text).strip()[-4000:]
    step = steps[int(at[-1])].strip().splitlines()[0] if at else "start of python"
    if code == 0 and finished:
        return {"ok": True, "reason": "", "fix": "", "output": output}
    reason, fix = why(output, code, finished, timeout)
    return {"ok": False, "reason": f"`{step}`: {reason}", "fix": fix, "output": output}


def why(output, code, finished, timeout):
    """(reason, fix) of a failure."""
    if code is None:
        return f"It did not end within {timeout} s.", "Look at the node, or allow more time."
    if code < 0 and -code in SIGNALS:
        return SIGNALS[-code]
    for pattern, reason, fix in SIGNS:
        found = re.search(pattern, output)
        if found:
            name = next((group for group in found.groups() if group), "")
            return reason.replace("\\1", name), fix.replace("\\1", name)
    if code == 0 and not finished:
        return "The process ended itself before the end.", "A check must not call exit."
    last = output.splitlines()[-1] if output else f"The process ended with {code}."
    return last, "Mend the package, or the check where it asks too much."


if __name__ == "__main__":
    main()
