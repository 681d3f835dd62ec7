"""The pip that comes with a Python, as a wheel. Standard library only."""

import glob
import os
import re
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
    # Its own first: the distribution's pip is for the distribution's Python.
    for place in (os.path.join(folder, "_bundled"), *BUNDLED):
        found = glob.glob(os.path.join(glob.escape(place), "pip-*.whl"))
        if found:
            return max(found, key=version_of)
    return ""


def version_of(wheel):
    """Return the version in a wheel's name, as numbers."""
    return [int(number) for number in re.findall("[0-9]+", os.path.basename(wheel).split("-")[1])]
