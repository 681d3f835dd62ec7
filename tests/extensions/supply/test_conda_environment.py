"""A conda environment installs from a group's index: by the library behind conda's solver.

The environment comes from a channel of one package, this machine's Python. make test-libraries
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.extensions.supply.test_variants import exported
from tests.factories.environments import installed_by, output_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("rattler") is None, reason="no conda: make test-libraries"
)

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# conda's own Python has no mark of Debian that another program manages its packages.
LEFT_OUT = {
    "test", "__pycache__", "site-packages", "dist-packages", "idlelib", "EXTERNALLY-MANAGED",
}  # fmt: skip
# As `conda create --channel file:///… python`.
CREATE = """
import asyncio, pathlib, sys
import rattler
from rattler.index import index_fs
channel, prefix, cache = map(pathlib.Path, sys.argv[1:])
async def create():
    await index_fs(channel)
    found = await rattler.solve([rattler.Channel(channel.as_uri())], ["python"])
    await rattler.install(found, prefix, cache_dir=cache, show_progress=False)
asyncio.run(create())
"""


def pack_python(channel: Path) -> None:
    """A conda package of the Python that runs this test."""
    files: list[str] = []

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if LEFT_OUT & set(Path(entry.name).parts):
            return None
        files.extend([] if entry.isdir() else [entry.name])
        return entry

    version = "{}.{}.{}".format(*sys.version_info)
    about = {"name": "python", "version": version, "build": "0", "build_number": 0, "depends": []}
    (channel / "linux-64").mkdir(parents=True)
    archive = channel / "linux-64" / f"python-{version}-0.tar.bz2"
    with tarfile.open(archive, "w:bz2", compresslevel=1) as package:
        package.add(Path(sys.executable).resolve(), "bin/python", filter=kept)
        package.add(sysconfig.get_path("stdlib"), f"lib/{PYTHON}", filter=kept)
        for name, text in (
            ("info/index.json", json.dumps({**about, "subdir": "linux-64"})),
            ("info/files", "\n".join(files) + "\n"),
        ):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            package.addfile(entry, io.BytesIO(text.encode()))


def test_the_lines_of_an_export_install_into_a_conda_environment(tmp_path: Path) -> None:
    pack_python(tmp_path / "channel")
    environment = tmp_path / "env"
    command = [sys.executable, "-c", CREATE, tmp_path / "channel", environment, tmp_path / "cache"]
    subprocess.run(command, check=False, capture_output=True)  # it may crash at its very end
    assert list((environment / "conda-meta").glob("python-*.json"))
    folder = exported(tmp_path)
    text = (folder / "variants.md").read_text().replace("HERE", folder.as_uri())
    for program in ("pip", "uv"):
        (line,) = re.findall(rf"^{program} .*install .*$", text, re.MULTILINE)
        python = installed_by(line, environment, exists=True)
        where = output_of(python, "import hnswlib; print(hnswlib.__file__)")
        assert where.startswith(str(environment))
