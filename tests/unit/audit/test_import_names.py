import zipfile
from pathlib import Path

import pytest

from fleetbuild.audit.import_names import import_names, top_level


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["hnswlib.cpython-311-x86_64-linux-gnu.so", "hnswlib-0.8.0.dist-info/RECORD"], "hnswlib"),
        (["numpy/__init__.py", "numpy/core/a.so", "numpy.libs/libgfortran-1.so.5"], "numpy"),
        (["six.py", "six-1.data/purelib/other.py", "data/table.csv"], "six"),
        (["a/b/c.py", "_a.so", "not-a-name/x.py", ""], "_a a"),
    ],
)
def test_the_modules_of_a_wheel_are_found(files: list[str], names: str) -> None:
    assert top_level(files) == tuple(names.split())


@pytest.mark.parametrize(("files", "names"), [(["_a.so", "b.py"], "b"), (["_a.so"], "_a")])
def test_private_names_are_used_only_without_public_ones(
    tmp_path: Path, files: list[str], names: str
) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in files:
            archive.writestr(file, "")
    assert import_names(wheel) == (names,)
