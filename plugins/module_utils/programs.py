"""Run a program within a time limit. Standard library only, Python 3.6 or newer."""

import contextlib
import os
import signal
import subprocess
import tempfile


def ended(command, environment, patience):
    """Return (exit code, output) of a program; the code is None if it was killed after so long.

    It prints into a file: a pipe would end only with the last of the processes that it leaves.
    """
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            command,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(patience)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # with all that it started
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)  # a process that is stuck in the kernel stays behind
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")
