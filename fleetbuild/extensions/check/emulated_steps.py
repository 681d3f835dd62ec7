"""Run steps under QEMU and without it, inside the sandbox. Runs by itself, without fleetbuild.

In: a JSON document as argument: QEMU's command, Python, seconds, scripts, and the script and its
arguments that tell /proc/cpuinfo of the imitated CPU. Out: a JSON document with the exit code, the
progress and the last lines of each run.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TAIL = 6000
# Threads that wait for each other in a loop take minutes on fewer CPUs.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1"
)


def main(text: str) -> None:
    """Print how each script ran, by its name."""
    work = json.loads(text)
    qemu = [*work["qemu"], "-L", cpuinfo([*work["qemu"], work["python"]], work["cpuinfo"])]
    answer = {}
    for name, script in work["scripts"].items():
        answer[name] = {
            "native": run([work["python"]], script, work["seconds"]),
            "emulated": run([*qemu, work["python"]], script, work["seconds"]),
        }
    json.dump(answer, sys.stdout)


def cpuinfo(python: list[str], script: list[str]) -> str:
    """Return a folder in which QEMU looks before it opens a file, with a /proc/cpuinfo."""
    folder = tempfile.mkdtemp()
    path = Path(folder, "proc", "cpuinfo")
    path.parent.mkdir()
    with path.open("wb") as file:
        subprocess.run([*python, "-I", "-S", "-c", *script], stdout=file, timeout=60, check=True)
    return folder


def run(python: list[str], script: str, seconds: float) -> dict[str, object]:
    """Return how a script ended."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                [*python, "-X", "faulthandler", "-s", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**os.environ, **ONE_THREAD},
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
        return {"code": code, "out": tail(out), "errors": tail(errors)}


def tail(file) -> str:  # type: ignore[no-untyped-def]
    """Return the end of a file."""
    size = file.seek(0, 2)
    file.seek(max(0, size - TAIL))
    data: bytes = file.read()
    return data.decode("utf-8", "replace")


if __name__ == "__main__":
    main(sys.argv[1])
