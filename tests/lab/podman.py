"""Calls to podman, as root, and what to do where it cannot be used."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

PACKAGES = [
    *("podman", "runc", "netavark", "iptables", "nftables", "iproute2", "mmdebstrap"),
    "debian-archive-keyring",
    *("openssh-client", "sshpass", "jq", "qemu-user-static", "arch-test", "nix-bin"),
    *("ccache", "patch", "e2fsprogs"),
]


class LabError(RuntimeError):
    """The lab cannot do this; the message says why and what to do."""


class LesserCpuError(LabError):
    """A node is asked for whose code this machine's CPU does not run."""


def as_root(command: Sequence[str]) -> list[str]:
    """Root owns the lab's containers: rootless ones have no address that the host can reach."""
    return list(command) if os.geteuid() == 0 else ["sudo", "-n", *command]


@cache
def podman_command() -> tuple[str, ...]:
    # crun (podman's first choice) refuses hybrid cgroup hierarchies; cgroupfs needs no systemd.
    options = ["--cgroup-manager", "cgroupfs"]
    if shutil.which("runc", path=_PATH):
        options += ["--runtime", "runc"]
    return ("podman", *options)


_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # Debian keeps runc in sbin


def podman(
    *arguments: str, check: bool = True, stdin: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run podman and give back what it printed; LabError with its words where it failed."""
    command = as_root([*podman_command(), *arguments])
    environment = {**os.environ, "PATH": _PATH}
    try:
        done = subprocess.run(
            command,
            text=True,
            capture_output=True,
            check=False,
            cwd=cwd,
            env=environment,
            # Never this process's own stdin: podman exec would read input that is meant for others.
            **({"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}),
        )
    except FileNotFoundError as missing:
        raise LabError(_how_to_install(str(missing))) from missing
    if check and done.returncode != 0:
        shown = " ".join(["podman", *arguments])
        raise LabError(f"{shown}\n  failed ({done.returncode}): {done.stderr.strip()}")
    return done


def require() -> None:
    """Raise LabError, with a fix, if this machine cannot start a lab."""
    for program in ("podman", "ssh-keygen"):
        if not shutil.which(program, path=_PATH):
            raise LabError(_how_to_install(f"{program} is not installed"))
    probe = podman("info", "--format", "{{.Host.Security.Rootless}}", check=False)
    if probe.returncode != 0:
        reason = probe.stderr.strip() or f"podman info ends with {probe.returncode}"
        raise LabError(_how_to_install(reason))


def _how_to_install(reason: str) -> str:
    return (
        f"The lab needs podman as root or with sudo: {reason}.\n"
        f"Fix: apt-get install {' '.join(PACKAGES)}, or --no-fleet to leave out tests that need it."
    )


def ulimits() -> list[str]:
    """Limits below the host's hard ones and podman's own: where it may not raise them it fails."""
    options = []
    for name, kind, wanted in (
        ("nofile", resource.RLIMIT_NOFILE, 16384),
        ("nproc", resource.RLIMIT_NPROC, 16384),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        options += ["--ulimit", f"{name}={limit}:{limit}"]
    return options
