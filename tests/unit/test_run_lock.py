import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleetbuild.errors import LockedError
from fleetbuild.run_lock import hold_run_lock, why_locked

HOLD = """
import sys
from pathlib import Path
from fleetbuild.run_lock import hold_run_lock, why_locked
with hold_run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_error_names_holder_and_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        hold_run_lock(path),
        pytest.raises(LockedError, match=rf"process {os.getpid()} on \S+ since ") as caught,
        hold_run_lock(path),
    ):
        pass
    assert why_locked(path) == why_locked(tmp_path / "none") == ""
    with hold_run_lock(path):
        assert f"held by process {os.getpid()} on " in why_locked(path)
    assert caught.value.exit_code == 8
    assert caught.value.fix


def test_the_start_of_the_other_run_is_a_time_as_people_write_it(tmp_path: Path) -> None:
    path, since = tmp_path / "lock", (datetime.now(UTC) - timedelta(days=3)).isoformat()
    words = r"process 7 on deploy since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(3 days ago\)\.$"
    with hold_run_lock(path):
        path.write_text(json.dumps({"pid": 7, "host": "deploy", "since": since}))
        with pytest.raises(LockedError, match=words), hold_run_lock(path):
            pass


def test_a_holder_that_cannot_be_read_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_run_lock(path):
        path.write_text("[" * 4096)
        with (
            pytest.raises(LockedError, match=r"lock is held by another run\."),
            hold_run_lock(path),
        ):
            pass


def test_the_lock_is_released_if_the_run_fails(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), hold_run_lock(path):
        _ = 1 / 0
    with hold_run_lock(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert path.read_text() == ""


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        with pytest.raises(LockedError, match=f"process {holder.pid} "), hold_run_lock(path):
            pass
        holder.kill()
    assert path.read_text()  # it still names the dead one
    with hold_run_lock(path):
        pass


@pytest.mark.parametrize("signature", ["", "{", "[]", "{}", '{"pid": 1, "host": "", "since": "x"}'])
def test_an_unreadable_holder_is_called_another_run(tmp_path: Path, signature: str) -> None:
    path = tmp_path / "lock"
    with hold_run_lock(path):
        path.write_text(signature)
        with pytest.raises(LockedError, match="another run"), hold_run_lock(path):
            pass
