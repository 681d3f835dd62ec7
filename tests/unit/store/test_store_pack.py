"""A tree becomes one file, the same for the same content."""

from __future__ import annotations

import os
import tarfile

import pytest

from fleetbuild.store.pack import pack_tree


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "pkg" / "build").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "pkg"\nversion = "1"\n')
    (root / "pkg" / "build" / "kept.py").write_text("")
    for left_out in (".git", "build", "dist", "pkg/__pycache__"):
        (root / left_out).mkdir()
        (root / left_out / "file").write_text("x")
    # A submodule, with what its project calls build.
    (root / "third_party" / "lib" / "build").mkdir(parents=True)
    (root / "third_party" / "lib" / ".git").write_text("gitdir: ../../.git/modules/lib\n")
    (root / "third_party" / "lib" / "build" / "lib.c").write_text("int x;\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    return root


def test_a_tree_is_packed_by_content(tree, tmp_path):
    def packed():
        pack_tree(tree, tmp_path / "packed", "my_pkg-1")
        return (tmp_path / "packed").read_bytes()

    before = packed()
    os.utime(tree / "run.sh", (1, 1))
    (tree / ".git" / "file").write_text("other")
    assert packed() == before
    with tarfile.open(tmp_path / "packed") as tar:
        assert tar.getnames() == [
            "my_pkg-1/link",
            "my_pkg-1/pkg/build/kept.py",
            "my_pkg-1/pyproject.toml",
            "my_pkg-1/run.sh",
            "my_pkg-1/third_party/lib/build/lib.c",
        ]
        assert tar.getmember("my_pkg-1/run.sh").mode == 0o755
        assert tar.getmember("my_pkg-1/link").issym()
        assert tar.extractfile("my_pkg-1/run.sh").read() == b"#!/bin/sh\n"
    (tree / "run.sh").write_text("#!/bin/bash\n")
    assert packed() != before


def test_a_checkout_is_packed_completely(tree, tmp_path):
    pack_tree(tree, tmp_path / "packed", "p-1", whole=True)
    with tarfile.open(tmp_path / "packed") as tar:
        names = tar.getnames()
    assert {"p-1/build/file", "p-1/dist/file", "p-1/pkg/__pycache__/file"} <= set(names)
    assert not [name for name in names if ".git" in name]
