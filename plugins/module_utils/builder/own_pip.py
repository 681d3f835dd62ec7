"""The pip that comes with a Python, as a wheel. Standard library only."""

import glob
import os
import subprocess

BUNDLED = ("/usr/share/python-wheels", "/usr/share/python3-wheels")  # where distributions keep it
FIND_ENSUREPIP = "import ensurepip, os; print(os.path.dirname(ensurepip.__file__))"


def pip_wheel(python):
    """Return the pip wheel that comes with a Python, or an empty text."""
    try:
        folder = subprocess.check_output(
            [python, "-I", "-S", "-c", FIND_ENSUREPIP],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=60,
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    found = [
        wheel
        for place in (os.path.join(folder, "_bundled"), *BUNDLED)
        for wheel in sorted(glob.glob(os.path.join(place, "pip-*.whl")))
    ]
    return found[-1] if found else ""
