"""Turn the captured text of a node into facts. Pure; never raises.

A node is not trusted: text is bounded before it is read, only the expected format is accepted, and
control characters are removed from everything that is shown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fleetbuild.models import Capture, Facts, Libc, Manifest, Os, Python
from fleetbuild.probe.parsing.cpu import read_cpu
from fleetbuild.probe.parsing.framing import unanswered
from fleetbuild.probe.parsing.gpu import read_gpus
from fleetbuild.probe.parsing.release import read_needs_root, read_previous, read_release
from fleetbuild.probe.parsing.text import lines, once_per_text, short, too_long

MAX_WARNINGS = 32
MAX_PYTHONS = 64
MAX_PYTHON_LINES = 1000
MAX_LINKS = 16
MAX_TOOLS = 64

# The subject that stays unknown if a section does not answer.
_SUBJECTS = {
    "python": "its Python interpreters are",
    "nvidia-smi": "its GPUs are",
    "lspci": "its PCI devices are",
    "mig": "the modes of its GPUs are",
    "toolchain": "its compilers are",
    "disk": "its free disk space is",
    "libstdcxx": "its libstdc++ is",
    "release": "its releases are",
    "release-files": "the state of its releases is",
    "previous": "its previous releases are",
    "isolation": "its isolation of builds is",
}

_LIBC = re.compile(r"glibc|musl")
_VERSION = re.compile(r"\b\d{1,4}\.\d{1,4}(?:\.\d{1,4})?", re.ASCII)
_GLIBCXX = re.compile(r"GLIBCXX_(\d{1,4}(?:\.\d{1,4}){1,2})(?![\w.])", re.ASCII)
# A node chooses the path, and advice names it: it holds nothing that a shell reads.
_PATH = r"/[^\s;|&$`<>(){}\"'*?#!\\][^;|&$`<>(){}\"'*?#!\\]{0,500}?"
_LINK = re.compile(rf"(?P<link>{_PATH}) -> (?P<path>{_PATH})")
_PYTHON = re.compile(
    rf"(?P<path>{_PATH}) "
    r"(?P<version>\d{1,3}\.\d{1,3}[\w.+]{0,20}) (?P<soabi>[\w.-]{1,80})"
    r"(?P<words>( [\w-]{1,20}){0,8})",
    re.ASCII,
)
_TOOL = re.compile(r"([A-Za-z][\w+.-]{0,30}) (\d[\w.+-]{0,30})", re.ASCII)
_SIZE = re.compile(r"-?\d{1,18}", re.ASCII)
_SHARE = re.compile(r"-?\d{1,5}%|-", re.ASCII)
_FILE_SYSTEM = re.compile(r"[A-Za-z][\w.-]{0,30}", re.ASCII)
# Kernel settings that forbid user namespaces, as script.sh names them.
_SETTINGS = (
    "user.max_user_namespaces",
    "kernel.unprivileged_userns_clone",
    "kernel.apparmor_restrict_unprivileged_userns",
)
# CPython as wheels are named for it: cpython-311-…, cpython-37m-…, cpython-313t-…
_CPYTHON = re.compile(r"cpython-3\d{1,3}[mt]?(?:-.*)?", re.ASCII)
# The architecture in an SOABI, and the 32-bit ones that the same kernel runs.
_FOREIGN = {"x86_64": ("i386", "i686", "x32"), "aarch64": ("arm",)}


def facts_of(capture: Capture) -> Facts:
    """Return the facts in a capture; missing or malformed values are unknown."""
    late = unanswered(capture)
    # Part of a section would be worse than none of it: the first interpreters are not all of them.
    whole, capture = capture, {name: text for name, text in capture.items() if name not in late}
    cpu = read_cpu(capture)
    gpus = read_gpus(capture)
    releases = read_release(capture)
    pythons, foreign = _pythons(capture, cpu.arch)
    free, install_free, file_system = _disk(capture)
    can_isolate, setting = _isolation(capture)
    return Facts(
        state="unsupported" if cpu.unsupported else "ok",
        reason=cpu.unsupported.reason if cpu.unsupported else None,
        fix=(cpu.unsupported.fix or None) if cpu.unsupported else None,
        arch=cpu.arch,
        isa=cpu.isa,
        features=cpu.features,
        microarchitecture=cpu.microarchitecture,
        hypervisor_masked=cpu.masked,
        sve_bits=cpu.sve_bits,
        sms=gpus.sms,
        gpus=gpus.gpus,
        driver=gpus.driver,
        os=_os(capture, cpu.kernel),
        libc=_libc(capture),
        libstdcxx=_libstdcxx(capture),
        pythons=pythons,
        cpus=_cpus(capture),
        memory_gb=_memory_gb(capture),
        load=_load(capture),
        disk_gb=free,
        install_free_gb=install_free,
        install_read_only="read-only" in lines(capture, "disk", 1000, 1000),
        no_sudo="no-sudo" in lines(capture, "disk", 1000, 1000),
        install_filesystem=file_system,
        needs_root=read_needs_root(capture),
        can_isolate=can_isolate,
        isolation_setting=setting,
        toolchain=dict(_toolchain(capture)),
        release=releases.manifests,
        damaged=releases.damaged,
        signed_by=releases.signed_by,
        previous=read_previous(capture),
        missing_interpreters=tuple(filter(None, lines(capture, "missing-interpreters", 64))),
        requires_signature=lines(capture, "allowed-signers", 1, 80) == ["required"],
        unanswered=tuple(late),
        warnings=(
            *too_long(whole),
            *_late(late),
            *cpu.warnings,
            *gpus.warnings,
            *foreign,
            *releases.warnings,
        )[:MAX_WARNINGS],
    )


def _late(sections: Mapping[str, int]) -> list[str]:
    """Return a warning for each section that gave no answer in time."""
    return [
        f"The section {short(name, 40)} of the probe gave no answer within {seconds} s: "
        f"{_SUBJECTS.get(name, 'its content is')} unknown. Set a longer --timeout, or find out "
        "what blocks it there."
        for name, seconds in sections.items()
    ]


def releases_of(capture: Capture) -> Mapping[str, Manifest]:
    """Return the manifests of a node's current releases, by release name."""
    return read_release(capture).manifests


def unreachable(reason: str, fix: str = "") -> Facts:
    """Return the facts of an unreachable node."""
    return Facts(state="unreachable", reason=reason, fix=fix or None)


@once_per_text("os-release")
def _os(capture: Capture, kernel: str | None) -> Os:
    fields = dict(
        line.split("=", 1) for line in lines(capture, "os-release", 256, 400) if "=" in line
    )

    def field(*names: str) -> str | None:
        values = (short(fields.get(name, "").strip("\"' "), 100) for name in names)
        return next(filter(None, values), None)

    return Os(
        id=field("ID"),
        version=field("VERSION_ID"),
        name=field("PRETTY_NAME", "NAME"),
        kernel=kernel,
    )


@once_per_text("libc")
def _libc(capture: Capture) -> Libc | None:
    """ "glibc 2.35"; "musl libc (x86_64)" and "Version 1.2.3", on two lines or one."""
    said = " ".join(lines(capture, "libc", 5, 400))
    family = _LIBC.search(said)
    version = _VERSION.search(said, family.end()) if family else None
    if not (family and version):
        return None
    return Libc(family="glibc" if family[0] == "glibc" else "musl", version=version[0])


@once_per_text("libstdcxx")
def _libstdcxx(capture: Capture) -> str | None:
    versions = _GLIBCXX.findall(" ".join(lines(capture, "libstdcxx", 1000, 400)))
    return max(versions, key=lambda text: [int(part) for part in text.split(".")], default=None)


@once_per_text("python")
def _pythons(capture: Capture, arch: str | None) -> tuple[tuple[Python, ...], tuple[str, ...]]:
    """Return the interpreters, each path once, and a warning for each unsupported one."""
    pythons: dict[str, Python] = {}
    warnings = []
    said = lines(capture, "python", MAX_PYTHON_LINES, 1000)
    links = _links(said)
    for match in filter(None, map(_PYTHON.fullmatch, said)):
        path, soabi, words = match["path"], match["soabi"], match["words"].split()
        machine = soabi.split("-")[2] if soabi.count("-") >= 2 else ""
        if arch in _FOREIGN and machine.startswith(_FOREIGN[arch]):
            warnings.append(f"{short(path)} is a 32-bit Python ({soabi}), so it is left out.")
        elif not _CPYTHON.fullmatch(soabi):
            warnings.append(
                f"{short(path)} is a Python without wheel support ({soabi}), so it is left out."
            )
        elif len(pythons) < MAX_PYTHONS and path not in pythons:
            pythons[path] = Python(
                path=path,
                version=match["version"],
                soabi=soabi,
                venv=bool({"venv", "venv-alone"} & {*words}) if words else None,
                ensurepip="venv" in words if words else None,
                headers="headers" in words if words else None,
                links=links.get(path, ()),
            )
    return tuple(pythons.values()), tuple(warnings)


def _links(said: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the links to each interpreter. A link that leads to several is left out."""
    targets: dict[str, set[str]] = {}
    for match in filter(None, map(_LINK.fullmatch, said)):
        targets.setdefault(match["link"], set()).add(match["path"])
    links: dict[str, tuple[str, ...]] = {}
    for link, (path, *others) in targets.items():
        known = links.get(path, ())
        if not others and len(known) < MAX_LINKS:
            links[path] = (*known, link)
    return links


def _cpus(capture: Capture) -> int | None:
    match = re.fullmatch(
        r"[1-9]\d{0,4}", " ".join(lines(capture, "nproc", 4, 80)).strip(), re.ASCII
    )
    return int(match[0]) if match else None


def _load(capture: Capture) -> float | None:
    """Return the programs that wanted a CPU, on average over the last five minutes."""
    match = re.match(
        r"\S{1,20} (\d{1,6}\.\d{1,6}) ", " ".join(lines(capture, "loadavg", 1, 80)), re.ASCII
    )
    return float(match[1]) if match else None


def _memory_gb(capture: Capture) -> float | None:
    """Return the memory that programs may use: the machine's, or less by the limit of a cgroup."""
    known = [size for size in (_total_memory(capture), _memory_limit(capture)) if size is not None]
    return round(min(known), 1) if known else None


def _memory_limit(capture: Capture) -> float | None:
    match = re.fullmatch(
        r"[1-9]\d{0,17}", " ".join(lines(capture, "memory-limit", 4, 80)).strip(), re.ASCII
    )
    return int(match[0]) / 1024**3 if match else None


def _total_memory(capture: Capture) -> float | None:
    for line in lines(capture, "meminfo", 1000, 200):
        match = re.fullmatch(r"MemTotal: *(\d{1,15}) kB", line, re.ASCII)
        if match:
            return int(match[1]) / 1024**2
    return None


def _disk(capture: Capture) -> tuple[float | None, float | None, str | None]:
    """Return the free space of the workspace (first row of df), and the free space and file system
    type of the install path (last row)."""
    header, *table = lines(capture, "disk", 1000, 1000) or [""]
    rows = list(filter(None, map(_row_of_df, table)))
    if not rows:
        return None, None, None
    free, install_free = (round(max(0, row[0]) / 1024**2, 3) for row in (rows[0], rows[-1]))
    return round(free, 1), install_free, rows[-1][1] if " Type " in header else None


def _row_of_df(line: str) -> tuple[int, str | None] | None:
    """Return free KB and file system type of a row.

    Names may contain spaces, so a row is recognised by three sizes, a percentage and a path.
    """
    words = line.split()
    for at in range(1, len(words) - 4):
        total, used, free, share, mounted = words[at : at + 5]
        sizes = all(map(_SIZE.fullmatch, (total, used, free))) and not total.startswith("-")
        if sizes and _SHARE.fullmatch(share) and mounted.startswith("/"):
            kind = words[at - 1] if at > 1 and _FILE_SYSTEM.fullmatch(words[at - 1]) else None
            return int(free), kind
    return None


def _isolation(capture: Capture) -> tuple[bool | None, str | None]:
    """Return whether builds can be isolated there, and the setting that forbids it.

    "namespaces", or "none" with the setting's name.
    """
    words = " ".join(lines(capture, "isolation", 2, 200)).split()
    if words[:1] == ["namespaces"]:
        return True, None
    if words[:1] != ["none"]:
        return None, None
    return False, next((word for word in words[1:2] if word in _SETTINGS), None)


@once_per_text("toolchain")
def _toolchain(capture: Capture) -> Mapping[str, tuple[str, ...]]:
    tools: dict[str, tuple[str, ...]] = {}
    for match in filter(None, map(_TOOL.fullmatch, lines(capture, "toolchain", MAX_TOOLS, 200))):
        versions = tools.get(match[1], ())
        if match[2] not in versions:
            tools[match[1]] = (*versions, match[2])
    return MappingProxyType(tools)
