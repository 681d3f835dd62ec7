#!/usr/bin/python
"""Find the tools of a builder, and install the missing ones."""

DOCUMENTATION = r"""
module: toolchain
short_description: Find and install compilers, Python headers and a compiler cache
description:
  - Installs packages with the distribution's own command, so it needs no Python bindings for it.
options:
  state:
    description: C(query) only looks; C(present) installs missing packages.
    choices: [query, present]
    type: str
    default: query
  packages:
    description:
      - The packages by family of distributions (debian, redhat, amazon, suse, alpine) and by need
        (compiler, gcc, patch, cache, venv, headers, or a library's name).
    type: dict
    required: true
  python: {description: The interpreter to build for., type: path, required: true}
  cache:
    description: The compiler cache. A builder works without it.
    choices: [ccache, sccache, none]
    type: str
    default: ccache
  tools:
    description: Other programs to find, each with the oldest version if it matters (cargo>=1.63).
    type: list
    elements: str
    default: []
  libraries:
    description: Libraries to find, with their headers.
    type: list
    elements: str
    default: []
  gccs: {description: Major versions of gcc to find., type: list, elements: str, default: []}
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Look for missing packages
  fleetbuild.core.toolchain:
    python: /usr/bin/python3.11
    packages: &packages
      debian:
        compiler: [gcc, g++, make]
        cache: [ccache]
        venv: ["python{version}-venv"]
        headers: ["python{version}-dev"]
  register: toolchain

- name: Install missing packages
  fleetbuild.core.toolchain:
    state: present
    python: /usr/bin/python3.11
    packages: *packages
  become: true
"""

RETURN = r"""
found:
  description: The version of each program that was found.
  returned: always
  type: dict
  sample: {gcc: 12.2.0, make: "4.3", python: "3.11"}
needed:
  description: Packages that a build needs.
  returned: always
  type: list
  elements: str
optional:
  description: Packages that make builds faster.
  returned: always
  type: list
  elements: str
unknown:
  description: Needs for which O(packages) names no package on this distribution.
  returned: always
  type: list
  elements: str
root:
  description: Whether the module ran as root.
  returned: always
  type: bool
command:
  description: The command that installs the missing packages.
  returned: always
  type: str
installed:
  description: The packages that were installed.
  returned: state is present and something was missing
  type: list
  elements: str
notes:
  description: Optional packages that cannot be installed, and why.
  returned: state is present and something was missing
  type: list
  elements: str
"""

import glob
import os
import re
import shutil
import subprocess

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.exceptions import reported
from ..module_utils.programs import ended

FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "amazon": ("amzn",),  # before redhat, which it also says to be like
    "redhat": ("rhel", "fedora", "centos", "rocky", "almalinux", "ol"),
    "suse": ("suse", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles"),
    "alpine": ("alpine",),
}
REFRESH = {"debian": ["apt-get", "-q", "update"]}
INSTALL = {
    "debian": ["apt-get", "-q", "-y", "install", "--no-install-recommends"],
    "amazon": ["dnf", "-y", "install"],
    "redhat": ["dnf", "-y", "install"],
    "suse": ["zypper", "--non-interactive", "install", "--no-recommends"],
    "alpine": ["apk", "add", "--no-cache"],
}
PATIENCE = 3600  # seconds for one command of a package manager, over a slow line
COMPILERS = (("gcc", "g++"), ("clang", "clang++"))
LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib", "/usr/local/lib64")
TOOLSET = "/opt/rh/gcc-toolset-{}/root/usr/bin/gcc"
PROBE = """
import os, sys, sysconfig
print("%d.%d" % sys.version_info[:2])
try:
    import venv, ensurepip
    print("venv")
except ImportError:
    pass
if os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    print("headers")
"""


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["query", "present"], "default": "query"},
            "packages": {"type": "dict", "required": True},
            "python": {"type": "path", "required": True},
            "cache": {"choices": ["ccache", "sccache", "none"], "default": "ccache"},
            "tools": {"type": "list", "elements": "str", "default": []},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "gccs": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    with reported(module):
        module.exit_json(**work(module))


def work(module):
    """Find, and install, what the parameters name; return the result."""
    family, python = os_family(), module.params["python"]
    found, missing = look(**wanted_of(module))
    packages = names(module.params["packages"].get(family, {}), missing, python, found)
    needed = [package for need, listed in packages.items() if need != "cache" for package in listed]
    optional = packages.get("cache", [])
    facts = {
        "root": os.geteuid() == 0,
        "found": found,
        "needed": needed,
        "optional": optional,
        "unknown": [need for need in missing if need != "cache" and not packages.get(need)],
        "command": " ".join([*INSTALL.get(family, ["install"]), *needed, *optional]),
    }
    if module.params["state"] == "query" or not (needed or optional):
        return {"changed": False, **facts}
    if module.check_mode:
        return {"changed": True, "installed": [], "notes": [], **facts}
    installed, notes = [], []
    for wanted, must in ((needed, True), (optional, False)):
        problem = install(family, wanted) if wanted else None
        if problem and must:
            module.fail_json(msg=problem, **facts)
        if problem:
            notes.append("{} is not installed: {}".format(", ".join(wanted), problem))
        else:
            installed += wanted
    facts["found"], missing = look(**wanted_of(module))
    lacking = [need for need in missing if need != "cache"]
    old = [need for need in lacking if need.partition(">=")[0] in facts["found"]]
    if old:
        module.fail_json(
            msg=f"This distribution's newest is too old: {', '.join(old)} is needed. Install it "
            "for all users, in /usr/local/bin, or let another node build (build.builders).",
            **facts,
        )
    if lacking:
        module.fail_json(
            msg=f"The packages are installed, but {', '.join(lacking)} for {python} is missing.",
            **facts,
        )
    return {"changed": bool(installed), "installed": installed, "notes": notes, **facts}


def os_family():
    """Return the distribution's family by os-release; an empty string if it is unknown."""
    words = []
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    if re.match("ID(_LIKE)?=", line):
                        words += line.partition("=")[2].strip().strip("\"'").split()
            break
    return next((f for f, ids in FAMILIES.items() if any(word in ids for word in words)), "")


def wanted_of(module):
    """Return the module's parameters for look()."""
    return {name: module.params[name] for name in ("python", "cache", "tools", "gccs", "libraries")}


def look(python, cache, tools, gccs, libraries=()):
    """Return ({tool: version}, [missing needs])."""
    others = [tool.partition(">=")[0] for tool in tools]
    all_of_them = [*(tool for pair in COMPILERS for tool in pair), "make", *others, cache]
    found = {tool: version(tool) for tool in all_of_them if shutil.which(tool)}
    missing = []
    if "make" not in found or not any(set(pair) <= set(found) for pair in COMPILERS):
        missing.append("compiler")
    if cache != "none" and cache not in found:
        missing.append("cache")
    missing += [tool for tool in tools if not suits(tool, found)]
    missing += [name for name in libraries if not any(map(glob.glob, places(name)))]
    found.update({f"gcc-{major}": gcc_of(major) for major in gccs if gcc_of(major)})
    missing += [f"gcc-{major}" for major in gccs if f"gcc-{major}" not in found]
    said = output([python, "-I", "-c", PROBE]).split()
    if said:
        found["python"] = said[0]
    return found, missing + [need for need in ("venv", "headers") if need not in said]


def suits(tool, found):
    """Whether cargo, or cargo>=1.63, is among the programs found."""
    name, oldest = (tool + ">=").split(">=")[:2]
    return name in found and numbers(found[name]) >= numbers(oldest)


def numbers(text):
    return [int(part) for part in re.findall(r"\d+", text)]


def places(library):
    """Return where the linker looks for a library. Headers bring the name without a version."""
    return [f"{folder}/lib{library}.so" for folder in LIBRARIES]


def gcc_of(major):
    """Return the version of an installed gcc of this major version with its g++, else empty."""
    for gcc in ("gcc", f"gcc-{major}", f"gcc{major}-gcc", TOOLSET.format(major)):
        if shutil.which(gcc) and shutil.which("g++".join(gcc.rsplit("gcc", 1))):
            found = version(gcc)
            if found.split(".")[0] == major:
                return found
    return ""


def version(tool):
    """Return the version in the first line that a tool prints."""
    lines = output([tool, "--version"]).split("\n")
    said = re.findall(r"\d+\.\d+(?:\.\d+)?", lines[0])
    return said[-1] if said else "unknown"


def output(command):
    """Return the output of a command; empty if it fails."""
    try:
        found = subprocess.check_output(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.decode("utf-8", "replace")


def names(table, missing, python, found):
    """Return need -> packages, with the interpreter's version filled in."""
    version_ = found.get("python") or re.sub(r"^.*/python", "", python)
    system = os.path.basename(os.path.realpath("/usr/bin/python3"))[len("python") :]
    # Enterprise Linux: packages of its own Python are python3-…, of other Pythons python3.11-…
    prefix = "python3" if version_ in ("", "3", system) else "python" + version_
    fill = {"version": version_ or "3", "prefix": prefix, "flat": prefix.replace(".", "")}
    named = {}
    for need in missing:
        kind, major = need.partition(">=")[0].partition("-")[::2]  # gcc-11 is a gcc
        if table.get(kind):
            named[need] = [package.format(major=major, **fill) for package in table[kind]]
    return named


def install(family, packages):
    """Install packages; return None, or the package manager's error."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LANG="C.UTF-8")
    commands = [
        command for command in (REFRESH.get(family), [*INSTALL[family], *packages]) if command
    ]
    if INSTALL[family][0] == "dnf" and not shutil.which("dnf"):
        commands = [["yum", *command[1:]] for command in commands]
    for command in commands:
        try:
            code, said = ended(command, environment, PATIENCE)
        except OSError as error:
            return f"{command[0]}: {error.strerror}."
        if code is None:
            return f"{command[0]} did not end within {PATIENCE} s: find out what blocks it."
        if code != 0 and command not in REFRESH.values():
            return " ".join(said.strip().splitlines()[-2:])
    return None


if __name__ == "__main__":
    main()
