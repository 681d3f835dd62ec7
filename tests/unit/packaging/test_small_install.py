"""audit and check run with the few packages that docs/check.md names, without Ansible and SSH."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.factories.files import make_wheel

ROOT = Path(__file__).parents[3]
# Nothing can be imported that neither Python, fleetbuild nor a package of the line has installed.
BLOCKED = """
import re, sys
from importlib.metadata import packages_distributions, requires
def normal(name): return re.sub("[-_.]+", "-", name).lower()
left, small = sys.argv.pop(1).split(), set()
while left:
    if (name := normal(left.pop())) not in small:
        small.add(name)
        left += [re.match(r"[\\w.-]+", text)[0] for text in requires(name) or () if ";" not in text]
class Blocker:
    known = packages_distributions()
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in self.known and small.isdisjoint(map(normal, self.known[top])):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
try:
    import paramiko
except ModuleNotFoundError:
    from fleetbuild.__main__ import main
    sys.exit(main())
"""


def small_packages() -> list[str]:
    text = (ROOT / "docs/check.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^pip install (archspec .+)$", text, re.MULTILINE)
    return str(line).split()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["audit", "WHEEL", "--for", "Haswell"], "Haswell     runs"),
        (["check", "small", "--for", "Haswell"], "runs 1"),
        (["check", "-r", "requirements.txt"], "runs 1"),
        (["check", "--lock", "pylock.toml"], "runs 1"),
    ],
)
def test_a_small_install_is_enough_for_audit_and_check(
    tmp_path: Path, words: list[str], said: str
) -> None:
    wheel = make_wheel(tmp_path, "small")
    (tmp_path / "requirements.txt").write_text(f"--find-links {tmp_path}\nsmall==1.0\n")
    (tmp_path / "pylock.toml").write_text(
        "lock-version = '1.0'\ncreated-by = 'a test'\n[[packages]]\nname = 'small'\n"
        f"version = '1.0'\nwheels = [{{path = '{wheel.name}', hashes = {{sha512 = '00'}}}}]\n"
    )
    names = " ".join(("fleetbuild", *small_packages()))
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, names, *(str(wheel) if w == "WHEEL" else w for w in words)],
        cwd=tmp_path,
        env={
            "HOME": str(tmp_path),
            "PATH": f"{Path(find_uv_bin()).parent}{os.pathsep}/usr/bin:/bin",
            "UV_FIND_LINKS": str(tmp_path),
            "UV_NO_INDEX": "1",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert said in done.stdout, done.stderr
    assert done.returncode == 0
