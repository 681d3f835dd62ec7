"""Pack what tests/gpu needs on a machine without a network: `python -m tests.gpu.bundle FILE`.

In: this checkout, and a package index. Out: a tar of wheels, two sources and run.sh.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.factories.sdists import fetch_sdist

ROOT = Path(__file__).parents[2]
LIMIT = 64 << 20
# What builds ask for on that machine, which has torch, triton and nvcc.
BUILD = ["setuptools<82", "wheel", "ninja", "packaging", "psutil", "pip>=25.1"]
# 2.21.5 ends the first module of a build with "'UnifiedTaskResult' object is not iterable".
ANSIBLE = "ansible-core<2.20"
SOURCES = {"torch-scatter": "2.1.2"}
# The tests by part, for machines that end a command after ten minutes: each part takes less.
PARTS = {
    "probe": "the_probe_agrees",
    "extension": "an_extension_is_built",
    "refusal": "a_wheel_for_another_gpu",
    "scatter": "torch_scatter",
    "compile": "torch_compile",
    "ptx": "ptx_of_an_older",
    "bitsandbytes": "bitsandbytes_quantises",
    "check": "check_says",
}
RUN = """\
#!/bin/bash
# Runs tests/gpu here, with nothing from a network: bash run.sh PART, with PART one of
# @PARTS@ or all.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
@CASES@
  all) only=test ;;
  *) sed -n 2,3p "$0"; exit 2 ;;
esac
export FLEETBUILD_GPU_WHEELS="$here/wheels" FLEETBUILD_GPU_TORCH="$here/torch"
export FLEETBUILD_GPU_PYTHON="${PYTHON:-$(command -v python3)}"
# The machine's Python may lack venv and ensurepip, so uv makes the environment, from its own wheel.
uv="$here/uv"
[ -x "$uv" ] || "$FLEETBUILD_GPU_PYTHON" - "$here" <<'end'
import glob, os, sys, zipfile
(wheel,) = glob.glob(sys.argv[1] + "/wheels/uv-*.whl")
with zipfile.ZipFile(wheel) as opened:
    (name,) = [name for name in opened.namelist() if name.endswith(".data/scripts/uv")]
    with open(sys.argv[1] + "/uv", "wb") as program:
        program.write(opened.read(name))
os.chmod(sys.argv[1] + "/uv", 0o755)
end
[ -x "$here/venv/bin/python" ] || "$uv" venv --quiet --python "$FLEETBUILD_GPU_PYTHON" "$here/venv"
"$uv" pip install --quiet --offline --no-index --find-links "$here/wheels" \\
  --python "$here/venv/bin/python" "fleetbuild[kernels]" pytest pip
cd "$here"
# The machine's own Python comes first: it is the one that wheels are built for.
export PATH="$PATH:$here/venv/bin" PYTHONPATH="$here"
pytest=(-m pytest -c /dev/null --rootdir "$here" -p no:cacheprovider -v -rs)
exec "$here/venv/bin/python" "${pytest[@]}" tests/gpu -k "$only"
"""


def script() -> str:
    """Return run.sh."""
    cases = "\n".join(f"  {part}) only={name} ;;" for part, name in PARTS.items())
    return RUN.replace("@PARTS@", ", ".join(PARTS)).replace("@CASES@", cases)


def make(file: Path, python: str, more: list[Path]) -> int:
    """Write the bundle for this Python, such as 3.12, with more wheels; return its size."""
    with tempfile.TemporaryDirectory() as scratch:
        wheels = Path(scratch, "wheels")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, ROOT])
        (fleetbuild,) = wheels.glob("fleetbuild-*.whl")
        platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (17, 28, 34)]
        platforms += ["--platform=manylinux2014_x86_64"]
        target = ["--only-binary=:all:", f"--python-version={python}", *platforms]
        wanted = [f"{fleetbuild}[kernels]", ANSIBLE, "pytest", *BUILD]
        _run([*pip, "download", "--dest", wheels, *target, *wanted])
        for name, version in SOURCES.items():
            shutil.copy(fetch_sdist(name, version, Path(scratch, "store"), python), wheels)
        for wheel in more:
            shutil.copy(wheel, wheels)
        with tarfile.open(file, "w") as tar:
            tar.add(wheels, "wheels")
            for name in ("tests/__init__.py", "tests/gpu", "tests/cuda_extension"):
                tar.add(ROOT / name, name, filter=_without_caches)
            run = Path(scratch, "run.sh")
            run.write_text(script())
            tar.add(run, "run.sh")
    return file.stat().st_size


def _without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


def _run(command: list[object]) -> None:
    subprocess.run([str(each) for each in command], check=True)


def main() -> int:
    """Write a bundle and say how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--python", default="3.12", help="that machine's Python")
    built = "a built wheel to take along, such as bitsandbytes for its GPU and torch"
    parser.add_argument("--wheel", action="append", default=[], type=Path, help=built)
    arguments = parser.parse_args()
    arguments.file.parent.mkdir(parents=True, exist_ok=True)
    if shutil.which("git") is None:
        print("git is not installed: the package takes its version from it", file=sys.stderr)  # noqa: T201
        return 2
    size = make(arguments.file, arguments.python, arguments.wheel)
    print(  # noqa: T201
        f"{arguments.file}: {size / (1 << 20):.0f} MB. Unpack it on the machine with the GPU, then "
        f"run each part: bash run.sh {' | '.join(PARTS)}"
    )
    if size > LIMIT:
        print(f"That is more than {LIMIT >> 20} MB.", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
