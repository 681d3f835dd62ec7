"""A full disk of this machine is distinguished from other failures."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from fleetbuild.errors import PlanFileError, UsageError
from fleetbuild.files import raise_if_folder_is_full
from fleetbuild.plan.document.files import save_plan
from fleetbuild.run_lock import hold_run_lock
from tests.factories.plans import make_plan


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_folder_with_space_stays_as_it_is(tmp_path: Path) -> None:
    raise_if_folder_is_full(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always_full = Path("/dev/full").open("wb")  # noqa: SIM115 (the code closes it)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda **_: always_full)
    with pytest.raises(OSError, match="No space left") as caught:
        raise_if_folder_is_full(tmp_path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path))


def test_a_plan_and_a_lock_on_a_full_disk_are_not_called_a_wrong_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PlanFileError):
        save_plan(make_plan(), tmp_path / "file" / "plan.json")
    with pytest.raises(UsageError), hold_run_lock(tmp_path):
        pass
    monkeypatch.setattr("fleetbuild.plan.document.files.write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        save_plan(make_plan(), tmp_path / "plan.json")
    monkeypatch.setattr("os.open", full)
    with pytest.raises(OSError, match="No space left"), hold_run_lock(tmp_path / "lock"):
        pass
