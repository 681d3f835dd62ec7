"""Small disks that can be filled, fail and lose power: an ext4 file system in a file each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.podman import LabError, as_root

_SHUTDOWN = 0x8004587D  # ext4's ioctl EXT4_IOC_SHUTDOWN
_LOSE = 2  # ... without writing anything more, neither data nor the log
_BUSY_SECONDS = 20
_OURS_SECONDS = 3  # in which the kernel takes down the mounts of an ended container


def root(*command: str | Path, check: bool = True) -> str:
    """Run a command as root and return its output."""
    line = as_root([str(word) for word in command])
    done = subprocess.run(
        line, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        raise LabError(f"{' '.join(line)}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Disk:
    """A file system in `image`, mounted at `at`. An error of the disk makes it read-only."""

    image: Path
    at: Path

    def make(self, megabytes: int) -> Disk:
        """Make and mount an empty disk of this size."""
        with self.image.open("wb") as file:
            file.truncate(megabytes << 20)
        root("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
        self.at.mkdir(parents=True, exist_ok=True)
        self.mount()
        return self

    def mount(self) -> None:
        root("mount", "-o", "loop,errors=remount-ro", self.image, self.at)

    def unmount(self) -> None:
        """Unmount it, and wait until its file system is gone.

        The kernel takes down the mounts of a container that has ended some time after it. Mounted
        again before, it would be the same file system, with its error. A program beside the tests
        that has made a mount namespace meanwhile holds a copy of the mount for as long as it runs.
        """
        began = time.monotonic()
        until = began + _BUSY_SECONDS
        while os.path.ismount(self.at):
            root("umount", self.at, check=time.monotonic() > until)
            time.sleep(0.1)
        while root("losetup", "--associated", self.image):
            if time.monotonic() > until:
                raise LabError(f"{self.image} is still mounted somewhere.")
            if time.monotonic() > began + _OURS_SECONDS:
                self._unmount_copies()
            time.sleep(0.1)

    def _unmount_copies(self) -> None:
        """Unmount it in the mount namespaces of other programs."""
        for mounts in Path("/proc").glob("[0-9]*/mounts"):
            with contextlib.suppress(OSError):
                if f" {self.at} " in mounts.read_text():
                    target = mounts.parent.name
                    root("nsenter", "--mount", "--target", target, "umount", self.at, check=False)

    def fill(self) -> None:
        """Use every free byte; what writes there at this moment gets none either."""
        free = os.statvfs(self.at)
        size = max(0, free.f_bavail * free.f_frsize - (8 << 20))  # the rest is for its own blocks
        name = self.at / f"ballast-{time.monotonic_ns()}"
        script = f"[ {size} = 0 ] || fallocate -l {size} {name}; dd if=/dev/zero of={name}-2 bs=64k"
        root("sh", "-c", script, check=False)

    def empty(self) -> None:
        # A loss of power afterwards must not bring them back.
        root("sh", "-c", f"rm -f {self.at}/ballast-* && sync -f {self.at}")

    def fail(self) -> None:
        """Let the file system meet an error of its disk."""
        device = Path(root("findmnt", "--noheadings", "--output", "SOURCE", self.at)).name
        root("sh", "-c", f"echo 1 > /sys/fs/ext4/{device}/trigger_fs_error")

    def cut(self) -> None:
        """Lose everything that the file system has not written yet, as when the power fails."""
        handle = os.open(self.at, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _LOSE))
        finally:
            os.close(handle)

    def repair(self) -> None:
        """Mount it again, checked, as at the start of a machine. Nothing may be using it."""
        self.unmount()
        root("fsck.ext4", "-p", self.image, check=False)  # 1: errors were corrected
        self.mount()

    def drop(self) -> None:
        """Unmount it and remove its file."""
        self.unmount()
        self.image.unlink(missing_ok=True)
