"""Facts: what a probe read on a node. Every field but the state may be unknown."""

from __future__ import annotations

from typing import Literal

from fleetbuild.models._base import Frozen
from fleetbuild.models.release import Manifest


class Gpu(Frozen):
    """A GPU. `sm` is its compute capability, such as "8.6", or None if unknown."""

    name: str
    vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    sm: str | None = None
    gfx: str | None = None  # of AMD: gfx942, if its driver works
    memory_mb: int | None = None


class Libc(Frozen):
    """The C library: glibc or musl, and its version."""

    family: Literal["glibc", "musl"]
    version: str


class Os(Frozen):
    """The distribution, by its os-release, and the kernel."""

    id: str | None = None
    version: str | None = None
    name: str | None = None
    kernel: str | None = None


class Python(Frozen):
    """A Python interpreter on a node. `venv`, `ensurepip` and `headers` are None if unknown.

    Debian and Ubuntu have ensurepip apart, in python3-venv, and venv in the standard library.
    `links` are other paths that lead to it, such as links and virtual environments.
    """

    path: str
    version: str
    soabi: str
    venv: bool | None = None
    ensurepip: bool | None = None
    headers: bool | None = None
    links: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The ABI tag of wheels: cp311, cp313t."""
        # cpython-311-x86_64-linux-gnu, cpython-313t-x86_64-linux-gnu
        return "cp" + self.soabi.split("-")[1] if self.soabi.startswith("cpython-") else self.soabi


class Container(Frozen):
    """The image of build.container on a node: what builds find in it, or why it cannot be used."""

    image: str
    id: str = ""  # 64 hex digits; builds run the image with this id
    problem: str | None = None  # continues "NODE ...", such as "has no podman and no docker"
    fix: str | None = None
    libc: Libc | None = None
    libstdcxx: str | None = None
    pythons: tuple[Python, ...] = ()
    toolchain: dict[str, tuple[str, ...]] = {}


class Facts(Frozen):
    """The facts about a node."""

    state: Literal["ok", "unreachable", "unsupported", "skipped"] = "ok"
    reason: str | None = None
    fix: str | None = None
    arch: str | None = None
    isa: str | None = None
    microarchitecture: str | None = None  # archspec's name; for display only
    features: tuple[str, ...] = ()
    hypervisor_masked: tuple[str, ...] = ()
    sve_bits: int | None = None  # length of an SVE register
    sms: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    os: Os = Os()
    libc: Libc | None = None
    libstdcxx: str | None = None
    pythons: tuple[Python, ...] = ()
    # Paths that the inventory sets as ansible_python_interpreter somewhere, and that are not there.
    missing_interpreters: tuple[str, ...] = ()
    cpus: int | None = None
    memory_gb: float | None = None
    load: float | None = None  # programs that want a CPU, on average over the last five minutes
    behind_bastion: bool = False  # the probe reached it by way of another machine
    disk_gb: float | None = None
    can_isolate: bool | None = None  # whether builds can have namespaces of their own
    isolation_setting: str | None = None  # the kernel setting that forbids them
    install_free_gb: float | None = None  # free space of the install path
    install_filesystem: str | None = None  # type of the file system that holds the install path
    install_read_only: bool = False  # that file system is mounted read-only
    no_sudo: bool = False  # its user is not root and has no sudo
    needs_root: dict[str, int] = {}  # release name -> uid of the login user, who cannot write there
    toolchain: dict[str, tuple[str, ...]] = {}  # tool -> versions
    # Release name -> its current manifest on the node. A damaged release is not `verified`.
    release: dict[str, Manifest] = {}
    damaged: dict[str, str] = {}  # release name -> its damage since the install
    signed_by: dict[str, str] = {}  # release name -> its signer, on nodes with allowed signers
    previous: dict[str, str] = {}  # release name -> the id that a rollback would switch to
    requires_signature: bool = False  # the node has a file of allowed signers
    taints: tuple[str, ...] = ()  # keys of the Kubernetes Node's taints that keep pods away
    instance_type: str | None = None  # the Kubernetes Node's label
    container: Container | None = None  # if the plan builds in containers
    # Sections of the probe that gave no answer in time: what they would tell is unknown.
    unanswered: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether programs already want more than half of its CPUs."""
        return (self.load or 0) > (self.cpus or 1) / 2

    @property
    def for_builds(self) -> Facts:
        """The facts that count for a build here: in a container, the image's software."""
        if self.container is None:
            return self
        own = ("libc", "libstdcxx", "pythons", "toolchain")
        software = {name: getattr(self.container, name) for name in own}
        # No distribution: the toolchain role installs nothing in an image.
        apart = {"os": Os(), "can_isolate": True, "isolation_setting": None}
        return self.model_copy(update={**software, **apart})

    def serves(self, release: str, wanted: str | None) -> bool:
        """Return whether this version of a release is current and verified."""
        current = self.release.get(release)
        return current is not None and current.id == wanted and current.verified

    def lacks_space(self, needed: int) -> str:
        """Return what the install path has free and a release needs, in bytes; "" if it fits."""
        if self.install_free_gb is None:
            return ""
        free = self.install_free_gb * 2**30
        if free >= needed:
            return ""
        return f"has {free / 1e6:.0f} MB free, and the release needs {needed / 1e6:.0f} MB"
