"""Files with names of a Node's choice are written below their folder or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetbuild.emit.emission import EmittedFiles
from fleetbuild.errors import UsageError


@pytest.mark.parametrize("name", ["../../x", "nodes/../../x", "/tmp/fleetbuild-x", "a/\0b"])
def test_emit_writes_nothing_outside_its_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "a" / "b"
    with pytest.raises(UsageError, match="not below"):
        EmittedFiles({"good.yml": "x", name: "x"}).written(folder)
    assert list(tmp_path.rglob("*")) == []
    assert EmittedFiles({"a..b/c.yml": "x"}).written(folder).paths[0].read_text() == "x"
