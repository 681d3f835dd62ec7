"""Test a release: run imports and checks in a child process, and explain a failure.

Standard library only, Python 3.6 or newer: every release contains this module as its program
bin/fleetbuild-sanity, which works without fleetbuild and Ansible.
"""

import contextlib
import glob
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

try:
    import ctypes
except ImportError:  # a Python that was built without it
    ctypes = None

NOBODY = 65534
NO_NEW_PRIVS = 38  # of prctl: sudo and the like give nothing more
LARGEST = 1 << 30  # bytes that a check may print, or write into one file
READ = 1 << 24  # bytes of it that are read, from the end
GPU_DEVICES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/nvmap", "/dev/dri/*")
# Runs the steps one by one and prints the number of each, so that a crash shows its step.
DRIVER = """
import json, sys
for number, step in enumerate(json.load(sys.stdin)):
    print("\\x1e%d" % number, file=sys.stderr, flush=True)
    exec(compile(step, "<%s>" % step.splitlines()[0], "exec"), {"__name__": "fleetbuild_check"})
print("\\x1edone", file=sys.stderr, flush=True)
"""
# Prints each GPU's SM and name, in nvidia-smi's order.
CUDA = """
import ctypes, os
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
driver = ctypes.CDLL("libcuda.so.1")

def ask(function, *arguments):
    answer = ctypes.c_size_t()
    if getattr(driver, function)(ctypes.byref(answer), *arguments):
        raise OSError(function)
    return answer.value

driver.cuInit(0)
for index in range(ask("cuDeviceGetCount")):
    device = ask("cuDeviceGet", index)
    name = ctypes.create_string_buffer(100)
    driver.cuDeviceGetName(name, 100, device)
    sm = [ask("cuDeviceGetAttribute", key, device) for key in (75, 76)]
    print("%d.%d, %s" % (*sm, name.value.decode("ascii", "replace").replace(",", " ")))
"""
JETSONS = ("5.3", "6.2", "7.2", "8.7", "10.1", "11.0")  # SMs of Jetson modules
OUTPUT = 4000  # characters of the output that are kept
GROUP = re.compile(r"(?P<sms>cpu|sm[0-9sm.]+)-(?P<isa>.+)-cp[0-9]+t?(?:-musl)?\Z")
FAILED = 7  # the exit code of a release that does not work
# For those who run this program on a node. A controller has these sentences in its own table.
ADVICE = {
    "allow-time": "Check the node, or allow more time.",
    "no-exit": "A check must not call exit.",
    "correct-package": "Correct the package, or the check if it is too strict.",
}


def manifest(release):
    """Return the content of manifest.json."""
    with open(os.path.join(release, "manifest.json"), "rb", buffering=0) as file:
        return json.loads(file.read().decode("utf-8"))


def try_release(release, about, node):
    """{ok, reason, fix, output, at}: `about` has imports, checks, timeout and known_failures.

    `fix` is advice: the name of a known failure or of `ADVICE`, and the values of its sentence.
    """
    steps = ["import " + name for name in about["imports"]] + about["checks"]
    python = os.path.join(release, "bin", "python")
    text, code = run(python, steps, about["timeout"])
    return judge(text, code, steps, about, names(node, manifest(release).get("group", "")))


def run(python, steps, timeout):
    """Run the steps in an isolated child in an empty folder; return its output and exit code.

    It prints into a file: a pipe would end only with the last of the processes that it leaves.
    """
    home, code = tempfile.mkdtemp(prefix="fleetbuild-verify-"), None
    with tempfile.TemporaryFile() as said:
        try:
            with start(python, home, said) as child:
                try:
                    child.communicate(json.dumps(steps).encode("utf-8"), timeout=timeout)
                    code = child.returncode
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
        except OSError as error:  # the python is missing or cannot be started
            said.write(str(error).encode("utf-8"))
            code = 1
        finally:
            shutil.rmtree(home, ignore_errors=True)
        size = said.seek(0, os.SEEK_END)
        said.seek(max(0, size - READ))
        more = f"\nIt printed {size >> 20} MiB, the most that is kept." if size >= LARGEST else ""
        return said.read().decode("utf-8", "replace") + more, code


def start(python, home, said):
    """Start the child in its folder: as nobody where this process is root, if that works.

    In a container, root may be unable to become anybody. If only root can start this Python, such
    as one in root's home, then only root uses the release.
    """
    if os.geteuid() == 0:
        try:
            return child_of(python, home, said, (NOBODY, NOBODY))
        except (PermissionError, subprocess.SubprocessError):
            os.chown(home, 0, -1)
    return child_of(python, home, said, None)


def child_of(python, home, said, user):
    """Start the child as a user, given as (uid, gid), or as this one."""
    clean = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "HOME": home,
        "TMPDIR": home,
    }
    return subprocess.Popen(
        [python, "-I", "-c", DRIVER],
        cwd=home,
        env=clean,
        preexec_fn=unprivileged(home, user),  # noqa: PLW1509 (one thread)
        stdin=subprocess.PIPE,
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def unprivileged(home, user):
    """Return what a child calls before it runs a release's code: it becomes that user."""
    libc = ctypes.CDLL(None) if ctypes else None
    groups = sorted(
        {os.stat(path).st_gid for each in GPU_DEVICES for path in glob.glob(each)} - {0}
    )

    def become():
        with contextlib.suppress(ValueError):  # of a limit that is lower
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
        if user:
            os.chown(home, *user)
            os.setgroups(groups)  # some systems let only these use a GPU
            os.setgid(user[1])
            os.setuid(user[0])
        if libc:
            libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)

    return become


def judge(text, code, steps, about, known):
    """Return the result for the child's exit code and output."""
    at = re.findall("\x1e([0-9]+)\n", text)
    at = int(at[-1]) if at else None
    finished = "\x1edone" in text
    output = re.sub("\x1e[0-9a-z]+\n", "", text).strip()[-OUTPUT:]
    if code == 0 and finished:
        return {"ok": True, "reason": "", "fix": [], "output": output, "at": at}
    reason, fix = why(output, code, finished, about, known)
    step = "start of python" if at is None else title(steps[at])
    longer = at is not None and len(steps[at].strip().splitlines()) > 1
    reason = "{}`{}`: {}".format("the check that begins with " if longer else "", step, reason)
    return {"ok": False, "reason": reason, "fix": fix, "output": output, "at": at}


def title(step):
    """Return a step's first line, which may be a comment with its purpose."""
    return step.strip().splitlines()[0].lstrip("# ")


def why(output, code, finished, about, known):
    """Return (reason, fix) of a failure."""
    if code is None:
        return (
            "It did not end within {} s.".format(about["timeout"]),
            ["allow-time"],
        )
    explained = explain(output, ending(code), about["known_failures"], known)
    if explained:
        return explained
    if code == 0 and not finished:
        return "The process ended itself before the end.", ["no-exit"]
    last = output.splitlines()[-1] if output else f"The process ended with {code}."
    return last, ["correct-package"]


def ending(code):
    """Return the signal that ended a process, also if a shell reports it; else nothing."""
    number = -code if code < 0 else code - 128
    return next((one.name for one in signal.Signals if one == number), "")


def explain(text, ended_by, known_failures, known):
    """(reason, fix) by the first known failure that fits, else None."""
    for failure in known_failures:
        matches = (re.search(pattern, text, re.M) for pattern in failure.get("patterns", ()))
        match = next(filter(None, matches), None)
        if match is None and not (ended_by and ended_by == failure.get("signal")):
            continue
        found = next(filter(None, match.groups()), "") if match else ""
        said = failure["says"].format("", found, **known)
        return said, [failure["name"], found, known["group"], known["isa"]]
    return None


def sentence(fix, about, known):
    """Return the sentence of advice, for people on this node."""
    for failure in about["known_failures"]:
        if failure["name"] == fix[0]:
            return failure["fix"].format("", fix[1], **known)
    return ADVICE[fix[0]]


def names(node, group):
    """Return the names for sentences: the node, its group, and the group's target."""
    parts = GROUP.match(group)
    sms = re.findall(r"sm(\d+)(\d)", parts.group("sms")) if parts else []
    return {
        "node": node,
        "group": group or "its group",
        "isa": parts.group("isa") if parts else "the wheel's rung",
        "sms": "SM " + ", ".join(".".join(sm) for sm in sms) if sms else "no GPU",
    }


# The sanity check, which runs without Ansible


def sanity_script(source, about, python):
    """Return this module as a program with the release's checks."""
    interpreter = python if re.match(r"/[!-~]{1,120}\Z", python) else "/usr/bin/env python3"
    return "\n".join(
        [
            "#!" + interpreter,
            source,
            "",
            f"ABOUT = json.loads({json.dumps(about, sort_keys=True)!r})",
            "",
            'if __name__ == "__main__":',
            "    bin = os.path.dirname(os.path.realpath(__file__))",
            "    sys.exit(sanity(os.path.dirname(bin), ABOUT))",
            "",
        ]
    )


def sanity(release, about):
    """Print the release's target and this machine's hardware, run the checks, explain failures."""
    said, node = manifest(release), socket.gethostname()
    known = names(node, said.get("group", ""))
    tell("release", "{} in {}".format(said["id"], release))
    tell("made for", "{group}: {isa}, {sms}".format(**known))
    held = ["{} {}".format(wheel["package"], wheel["version"]) for wheel in said["wheels"]]
    tell("holds", ", ".join(held + [text.replace("==", " ") for text in said["dependencies"]]))
    fits = [cpu_fits(about["features"], known), gpus_fit(known)]
    result = try_release(release, about, node)
    steps = ["import " + name for name in about["imports"]]
    steps += ["check: " + title(check) for check in about["checks"]]
    for step in steps if result["ok"] else steps[: result["at"] or 0]:
        tell("ok", step)
    if not result["ok"]:
        tell("FAILED", result["reason"], sentence(result["fix"], about, known))
    return 0 if result["ok"] and all(fits) else FAILED


def tell(what, *lines):
    """Print a line of the report, and its details below."""
    for line in lines:
        sys.stdout.write(f"{what:<10}{line}\n")
        what = ""
    sys.stdout.flush()


def cpu_fits(features, known):
    """Check that this CPU has all features that the release's code may use."""
    model, flags = cpu("/proc/cpuinfo")
    missing = [feature for feature in features if feature not in flags]
    if missing:
        lacks = "{}: lacks {}, which the wheels use".format(model, " ".join(missing))
        tell("CPU", lacks, "Plan again: {node} does not belong to {group}.".format(**known))
    else:
        tell("CPU", "{}: has all features of {isa}".format(model, **known))
    return not missing


def cpu(path):
    """Return the model's name, and the features that all processors have."""
    with open(path, encoding="utf-8", errors="replace") as file:
        pairs = [line.partition(":")[::2] for line in file]
    values = [(key.strip(), value.strip()) for key, value in pairs]
    model = next((value for key, value in values if key == "model name"), "this CPU")
    each = [set(value.split()) for key, value in values if key in ("flags", "Features")]
    return model, set.intersection(*each) if each else set()


def gpus_fit(known):
    """Check that the release has code for a GPU of the driver; name GPUs without code."""
    built = re.findall(r"\d+\.\d", known["sms"])
    shown = gpus() if built else []
    fit = not shown
    for number, (name, sm, driver) in enumerate(shown):
        served = not sm or any(runs_on(one, sm) for one in built)
        fit = fit or served
        note = "" if served else ": no code for it, the wheels have {}".format(known["sms"])
        said = f"SM {sm}" if sm else "SM unknown to this driver"
        tell(f"GPU {number}", f"{name}, {said}, driver {driver}{note}")
    if built and not shown:
        tell("GPU", "none that nvidia-smi or the CUDA driver shows")
    return fit


def runs_on(code, sm):
    """Return whether machine code for one SM runs on another; Jetsons run only their own."""
    (major, minor), (its_major, its_minor) = (
        [int(part) for part in each.split(".")] for each in (code, sm)
    )
    apart = code != sm and (code in JETSONS or sm in JETSONS)
    return major == its_major and minor <= its_minor and not apart


def gpus():
    """Return each GPU's name, SM and driver, from nvidia-smi.

    The nvidia-smi of driver 470 and older shows no SM, and a Jetson's shows little: then the CUDA
    driver is asked. A value that neither shows is empty.
    """
    rows = nvidia_smi("name,compute_cap,driver_version")
    if not rows:
        rows = [(name, "", driver) for name, driver in nvidia_smi("name,driver_version")]
    if rows and all(re.match(r"\d+\.\d\Z", row[1]) for row in rows):
        return rows
    told = [line.split(", ") for line in output([sys.executable, "-I", "-c", CUDA])]
    if not rows:
        return [(name, sm, "unknown") for sm, name in told]
    sms = [row[0] for row in told] if len(told) == len(rows) else [""] * len(rows)
    return [(row[0], sm, row[2]) for row, sm in zip(rows, sms)]


def nvidia_smi(columns):
    """Return a row for each GPU; empty if nvidia-smi shows nothing."""
    lines = output(["nvidia-smi", "--query-gpu=" + columns, "--format=csv,noheader"])
    rows = [tuple(line.split(", ")) for line in lines]
    return [row for row in rows if len(row) == columns.count(",") + 1]


def output(command):
    """Return the lines that a command prints; empty if it fails."""
    try:
        return subprocess.check_output(
            command, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=30
        ).splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
