"""The small disks: a fault that is over leaves nothing behind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.faults.disk import Disk, root
from tests.lab.podman import as_root

HELD = 2  # seconds


def test_a_repaired_disk_is_not_the_one_that_a_dying_container_still_holds(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "image", tmp_path / "at").make(16)
    try:
        # As a container whose processes have ended, but whose mounts the kernel still takes down.
        words = ["unshare", "--mount", "sh", "-c", f"echo held; exec sleep {HELD}"]
        with subprocess.Popen(as_root(words), stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            began = time.monotonic()
            disk.fail()
            disk.repair()
            root("touch", disk.at / "file")
            assert time.monotonic() - began > HELD / 2
    finally:
        disk.drop()


def test_a_program_with_a_copy_of_the_mount_does_not_keep_a_disk_from_its_repair(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path / "image", tmp_path / "at").make(16)
    words = as_root(["unshare", "--mount", "sh", "-c", "echo held; exec cat"])
    try:
        with subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            disk.fail()
            disk.repair()
            root("touch", disk.at / "file")
            assert holder.poll() is None
    finally:
        disk.drop()
