"""Requirement files and lock files, as people have them."""

from pathlib import Path

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.plan.resolve.locked_files import read_lock
from fleetbuild.plan.resolve.requirement_files import (
    read_constraints,
    read_group,
    read_project,
    read_requirement_files,
    read_requirements,
)

HASH = "a" * 64


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_requirements_keep_extras_ranges_sources_and_markers(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKEN_HOST", "git.example")
    file = write(
        tmp_path,
        "requirements.txt",
        "# what we use\n"
        "--extra-index-url https://pypi.example/simple\n"
        "numpy>=1.26,<3   # arrays\n"
        "uvicorn[standard]==0.30.0 ; python_version >= '3.9'\n"
        "hnswlib @ git+https://${TOKEN_HOST}/hnswlib@v0.8.0\n"
        "git+https://git.example/other.git@main\n"
        "-e ./ours\n"
        "torch \\\n  == 2.3.0 \\\n"
        f"  --hash=sha256:{HASH}\n",
    )
    found = read_requirements(file)
    assert found.requirements == (
        "numpy<3,>=1.26",
        'uvicorn[standard]==0.30.0; python_version >= "3.9"',
        "hnswlib @ git+https://git.example/hnswlib@v0.8.0",
        "git+https://git.example/other.git@main",
        str(tmp_path / "ours"),
        "torch==2.3.0",
    )
    assert found.indexes == ("https://pypi.example/simple",)
    assert found.hashes == {"torch": (HASH,)}
    assert found.places["numpy"] == f"{file}, line 3"
    assert found.places["torch"] == f"{file}, line 8"


def test_files_name_other_files_relative_to_themselves(tmp_path):
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", "base.txt", "-r ../last.txt\n-c bounds.txt\nnumpy\n")
    write(tmp_path / "more", "bounds.txt", "numpy<2\nscipy==1.13 ; python_version > '3.8'\n")
    write(tmp_path, "last.txt", "six")
    found = read_requirements(write(tmp_path, "r.txt", "--requirement=more/base.txt\n"))
    assert found.requirements == ("six", "numpy")
    assert found.constraints == ("numpy<2", 'scipy==1.13; python_version > "3.8"')
    assert read_constraints(tmp_path / "more" / "bounds.txt").constraints == found.constraints


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("numpy\n-r r.txt", "names itself"),
        ("--no-binary :all:", "line 1: the option --no-binary has no meaning"),
        ("numpy\nnum py", "line 2 is not a requirement"),
        ("numpy --global-option=x", "line 1 has an option that has no meaning"),
        ("numpy==1.0 --hash=md5:00", "no sha256"),
        ("-r https://pypi.example/r.txt", "names no file"),
        ("-r missing.txt", "missing.txt does not exist"),
        ("-rmissing.txt", "line 1: the option - has no meaning"),
        ("-e ./a b --hash=sha256:" + HASH, "a hash for a source without a name"),
        ("-c bounds.txt", "cannot bound a version"),
    ],
)
def test_what_cannot_be_honoured_is_an_error_with_its_line(tmp_path, text, said):
    write(tmp_path, "bounds.txt", "numpy @ git+https://git.example/numpy\n")
    with pytest.raises(ConfigError, match=said):
        read_requirements(write(tmp_path, "r.txt", text))


def test_groups_of_a_project_include_each_other(tmp_path):
    project = write(
        tmp_path,
        "pyproject.toml",
        "[project]\nname = 'ours'\ndependencies = ['numpy>=1']\n"
        "[project.optional-dependencies]\ngpu = ['torch']\n"
        "[dependency-groups]\nserve = [{include-group = 'Base_Set'}, 'uvicorn']\n"
        "base-set = ['hnswlib==0.8.0']\nround = [{include-group = 'round'}]\n",
    )
    assert read_group(project, "serve") == ("hnswlib==0.8.0", "uvicorn")
    assert read_group(project, "gpu") == ("numpy>=1", "torch")
    assert read_project(project) == ("numpy>=1",)
    with pytest.raises(ConfigError, match="Cyclic dependency group"):
        read_group(project, "round")
    with pytest.raises(ConfigError) as unknown:
        read_group(project, "serv")
    assert unknown.value.fix == "Its groups are: base-set, gpu, round, serve."


PROJECT = """
[project]
name = "ours"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = [
  "hnswlib", "uvicorn[standard]>=0.20", "tool ; sys_platform == 'win32'", "mine"
]
[dependency-groups]
bench = ["numpy"]
none = ["unlocked"]
[tool.uv.sources]
tool = { git = "https://git.example/tool", rev = "main" }
mine = { path = "mine" }
"""
UV_LOCK = f"""
version = 1
requires-python = ">=3.11"

[[package]]
name = "ours"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [
    {{ name = "hnswlib" }},
    {{ name = "uvicorn", extra = ["standard"] }},
    {{ name = "tool", marker = "sys_platform == 'win32'" }},
    {{ name = "mine" }},
]
[package.dev-dependencies]
bench = [{{ name = "numpy" }}]

[[package]]
name = "hnswlib"
version = "0.8.0"
source = {{ registry = "https://pypi.example/simple" }}
sdist = {{ url = "https://pypi.example/hnswlib-0.8.0.tar.gz", hash = "sha256:{HASH}" }}

[[package]]
name = "mine"
version = "3.0"
source = {{ directory = "mine" }}

[[package]]
name = "numpy"
version = "2.1.0"
source = {{ registry = "https://pypi.example/simple" }}
sdist = {{ url = "https://pypi.example/numpy-2.1.0.tar.gz", hash = "sha256:{HASH}" }}

[[package]]
name = "uvicorn"
version = "0.30.0"
source = {{ registry = "https://pypi.example/simple" }}
sdist = {{ url = "https://pypi.example/uvicorn-0.30.0.tar.gz", hash = "sha256:{HASH}" }}
[package.optional-dependencies]
standard = [{{ name = "numpy" }}]

[[package]]
name = "tool"
version = "1.0"
source = {{ git = "https://git.example/tool?rev=main#{"b" * 40}" }}
"""


@pytest.fixture
def uv_lock(tmp_path: Path) -> Path:
    write(tmp_path, "pyproject.toml", PROJECT)
    return write(tmp_path, "uv.lock", UV_LOCK)


def test_uv_lock_gives_the_direct_dependencies_and_pins_the_rest(tmp_path, uv_lock):
    found = read_requirement_files(lock=uv_lock)
    win = "(sys_platform == 'win32') and (sys_platform == \"win32\")"
    assert found.requirements == (
        "hnswlib==0.8.0",
        "uvicorn[standard]==0.30.0",
        f"tool @ git+https://git.example/tool@{'b' * 40} ; {win}",
        f"mine @ {tmp_path / 'mine'}",
    )
    assert found.constraints == ("hnswlib==0.8.0", "numpy==2.1.0", "uvicorn==0.30.0")
    assert found.hashes == dict.fromkeys(("hnswlib", "numpy", "uvicorn"), (HASH,))
    of_group = read_requirement_files(lock=uv_lock, groups=["bench"])
    assert of_group.requirements == ("numpy==2.1.0",)
    assert read_requirement_files(lock=uv_lock, has_packages=True).requirements == ()
    with pytest.raises(ConfigError, match="no dependency group test"):
        read_requirement_files(lock=uv_lock, groups=["test"])
    with pytest.raises(ConfigError, match="does not lock unlocked"):
        read_requirement_files(lock=uv_lock, groups=["none"])


def test_a_uv_lock_without_its_project_is_refused_with_a_way_on(uv_lock):
    uv_lock.with_name("pyproject.toml").write_text("[project]\nname = 'other'\nversion = '1'\n")
    with pytest.raises(ConfigError, match="cannot be exported by uv") as refused:
        read_requirement_files(lock=uv_lock)
    assert "uv export --format pylock.toml" in refused.value.fix
    uv_lock.with_name("pyproject.toml").unlink()
    with pytest.raises(ConfigError, match=r"pyproject\.toml does not exist"):
        read_requirement_files(lock=uv_lock)


def test_no_other_project_and_no_setting_changes_what_a_uv_lock_holds(
    uv_lock, tmp_path, monkeypatch
):
    """A folder for temporary files may hold any user's workspace, and a project any settings."""
    expected = read_lock(uv_lock)
    shared = tmp_path / "shared"
    shared.mkdir()
    write(shared, "pyproject.toml", "[tool.uv.workspace]\nmembers = ['*', '*/*']\n")
    write(shared, "uv.lock", UV_LOCK.replace("0.8.0", "6.6.6"))
    write(shared, "uv.toml", "required-version = '==0.0.1'\n")
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    monkeypatch.setenv("UV_PROJECT", str(shared))
    with uv_lock.with_name("pyproject.toml").open("a") as project:
        project.write(f"[tool.uv]\ncache-dir = '{tmp_path}/made'\nindex-url = 'http://h.invalid'\n")
    assert read_lock(uv_lock) == expected
    assert not (tmp_path / "made").exists()


def test_pylock_gives_all_its_packages(tmp_path):
    lock = write(
        tmp_path,
        "pylock.toml",
        "lock-version = '1.0'\ncreated-by = 'a test'\n"
        "[[packages]]\nname = 'numpy'\nversion = '2.1.0'\nmarker = \"python_version >= '3.11'\"\n"
        f"wheels = [{{name = 'numpy-2.1.0-py3-none-any.whl', url = 'https://pypi.example/n.whl', "
        f"hashes = {{sha256 = '{HASH}'}}}}]\n"
        "[[packages]]\nname = 'tool'\n"
        f"vcs = {{type = 'git', url = 'https://git.example/tool', commit-id = '{'b' * 40}'}}\n",
    )
    found = read_requirement_files(lock=lock)
    assert found.requirements == (
        "numpy==2.1.0 ; (python_version >= '3.11')",
        f"tool @ git+https://git.example/tool@{'b' * 40}",
    )
    assert found.constraints == ("numpy==2.1.0 ; python_version >= '3.11'",)
    assert found.hashes == {"numpy": (HASH,)}


@pytest.mark.parametrize(
    "text", ["", "a = 1", "version = 1", "lock-version = '1.0'\npackages = [1]", "[broken"]
)
def test_other_files_are_refused_as_locks(tmp_path, text):
    write(tmp_path, "pyproject.toml", PROJECT)
    with pytest.raises(ConfigError):
        read_lock(write(tmp_path, "uv.lock", text))


# --- Files that were never meant to be read ---


@pytest.mark.parametrize(
    "line", ["root:$6$canary$x:19000::", "KEY=canary", "-----BEGIN canary KEY-----", "a b canary",
             "numpy --canary", "[canary]", "<canary>=1"],
)  # fmt: skip
def test_no_error_quotes_a_line(tmp_path, line):
    with pytest.raises(ConfigError, match=r"r\.txt, line 1") as refused:
        read_requirements(write(tmp_path, "r.txt", line))
    assert "canary" not in str(refused.value) + str(refused.value.fix)


@pytest.mark.parametrize("name", ["/etc/shadow", "../../secret.txt", "link.txt", "~/secret.txt"])
def test_a_line_names_no_file_from_elsewhere(tmp_path, monkeypatch, name):
    (tmp_path / "a" / "b").mkdir(parents=True)
    write(tmp_path, "secret.txt", "canary\n")
    (tmp_path / "a" / "b" / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.chdir(tmp_path / "a" / "b")
    monkeypatch.setenv("HOME", str(tmp_path))
    for option in ("-r", "-c"):
        with pytest.raises(ConfigError, match=r"r\.txt, line 1 names no file below"):
            read_requirements(write(tmp_path / "a" / "b", "r.txt", f"{option} {name}\n"))
