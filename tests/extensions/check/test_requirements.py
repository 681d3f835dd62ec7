"""What to check, read from arguments, requirements files and locks."""

import pytest

from fleetbuild.errors import UsageError
from fleetbuild.extensions.check.machine_kinds import MachineKind
from fleetbuild.extensions.check.requirements import locked_wheels, read_requirements
from fleetbuild.models import TargetLibc
from fleetbuild.plan.resolve.locked_files import read_lock

KIND = MachineKind(
    name="Haswell",
    arch="x86_64",
    features=frozenset(),
    python="cp311",
    python_version="3.11.2",
    libc=TargetLibc(family="glibc", floor="2.36"),
)
SHA = "ab" * 32


def test_a_requirements_file_is_read_with_its_includes(tmp_path):
    (tmp_path / "more.txt").write_text("polars>=1\n")
    (tmp_path / "all.txt").write_text(
        f"# a stack\nnumpy==2.4.6 \\\n  --hash=sha256:{SHA}\nfaiss-cpu ; python_version > '3' # x\n"
        "-r more.txt\n\nnumpy==2.4.6\n--extra-index-url https://index.test\n-c bounds.txt\n"
    )
    (tmp_path / "bounds.txt").write_text("pandas<3\n")
    found = read_requirements(["torch"], [tmp_path / "all.txt"])
    faiss = 'faiss-cpu; python_version > "3"'
    assert found.requirements == ("torch", "numpy==2.4.6", faiss, "polars>=1")
    assert (found.constraints, found.indexes) == (("pandas<3",), ("https://index.test",))


@pytest.mark.parametrize("line", ["-e .", "a @ http://x/a.whl", "./tree"])
def test_a_source_that_is_on_no_index_is_refused(tmp_path, line):
    path = tmp_path / "r.txt"
    path.write_text(f"numpy\n{line}\n")
    with pytest.raises(UsageError, match="a check reads the wheels of an index"):
        read_requirements([], [path])
    with pytest.raises(UsageError, match="'num py' is not a requirement"):
        read_requirements(["num py"], [])


PYLOCK = """
lock-version = "1.0"
created-by = "a test"
[[packages]]
name = "numpy"
version = "1.0"
wheels = [{ url = "https://index.test/numpy-1.0-cp311-cp311-linux_x86_64.whl", size = 7,\
 hashes = { sha256 = "%s" } }]
[[packages]]
name = "colorama"
version = "1.0"
marker = "os_name == 'nt'"
wheels = [{ url = "https://index.test/colorama-1.0-py3-none-any.whl",\
 hashes = { sha256 = "%s" } }]
"""


def test_a_pylock_gives_what_it_installs_on_the_kind(tmp_path):
    path = tmp_path / "pylock.toml"
    path.write_text(PYLOCK % (SHA, SHA))
    (file,) = locked_wheels(read_lock(path), KIND).wheels
    assert (file.name, file.sha256, file.size) == ("numpy", SHA, 7)


def test_a_locked_package_without_a_wheel_is_named(tmp_path):
    path = tmp_path / "pylock.toml"
    path.write_text(PYLOCK.replace("cp311-cp311", "cp39-cp39") % (SHA, SHA))
    assert "no wheel of numpy" in str(locked_wheels(read_lock(path), KIND).problem)
