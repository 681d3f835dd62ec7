"""Requirement files and lock files, as people have them."""

from pathlib import Path

import pytest

from fleetbuild.errors import ConfigError
from fleetbuild.plan.resolve.requirement_files import (
    read_constraints,
    read_group,
    read_lock,
    read_project,
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
        ("numpy\nnum py", "line 2: 'num py' is not a requirement"),
        ("numpy --global-option=x", "--global-option has no meaning"),
        ("numpy==1.0 --hash=md5:00", "no sha256"),
        ("-r https://pypi.example/r.txt", "names no file"),
        ("-r missing.txt", "missing.txt does not exist"),
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
    assert read_group(project, "serve").requirements == ("hnswlib==0.8.0", "uvicorn")
    assert read_group(project, "gpu").requirements == ("numpy>=1", "torch")
    assert read_project(project).requirements == ("numpy>=1",)
    with pytest.raises(ConfigError, match="includes itself"):
        read_group(project, "round")
    with pytest.raises(ConfigError) as unknown:
        read_group(project, "serv")
    assert unknown.value.fix == "Its groups are: base-set, gpu, round, serve."


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
]
[package.dev-dependencies]
bench = [{{ name = "numpy" }}]

[[package]]
name = "hnswlib"
version = "0.8.0"
source = {{ registry = "https://pypi.example/simple" }}
sdist = {{ url = "https://pypi.example/hnswlib-0.8.0.tar.gz", hash = "sha256:{HASH}" }}

[[package]]
name = "numpy"
version = "2.1.0"
source = {{ registry = "https://pypi.example/simple" }}

[[package]]
name = "uvicorn"
version = "0.30.0"
source = {{ registry = "https://pypi.example/simple" }}

[[package]]
name = "tool"
version = "1.0"
source = {{ git = "https://git.example/tool?rev=main#{"b" * 40}" }}
"""


def test_uv_lock_gives_the_direct_dependencies_and_pins_the_rest(tmp_path):
    lock = write(tmp_path, "uv.lock", UV_LOCK)
    found = read_lock(lock)
    assert found.requirements == (
        "hnswlib==0.8.0",
        "uvicorn[standard]==0.30.0",
        f"tool @ git+https://git.example/tool@{'b' * 40} ; sys_platform == 'win32'",
    )
    assert found.constraints == ("hnswlib==0.8.0", "numpy==2.1.0", "uvicorn==0.30.0")
    assert found.hashes == {"hnswlib": (HASH,)}
    assert read_lock(lock, "bench").requirements == ("numpy==2.1.0",)
    with pytest.raises(ConfigError, match="the group test"):
        read_lock(lock, "test")


def test_pylock_gives_all_its_packages(tmp_path):
    lock = write(
        tmp_path,
        "pylock.toml",
        "lock-version = '1.0'\n"
        "[[packages]]\nname = 'numpy'\nversion = '2.1.0'\nmarker = \"python_version >= '3.11'\"\n"
        f"wheels = [{{url = 'https://pypi.example/n.whl', hashes = {{sha256 = '{HASH}'}}}}]\n"
        "[[packages]]\nname = 'tool'\n"
        f"vcs = {{type = 'git', url = 'https://git.example/tool', commit-id = '{'b' * 40}'}}\n",
    )
    found = read_lock(lock)
    assert found.requirements == (
        "numpy==2.1.0 ; python_version >= '3.11'",
        f"tool @ git+https://git.example/tool@{'b' * 40}",
    )
    assert found.constraints == ("numpy==2.1.0 ; python_version >= '3.11'",)
    assert found.hashes == {"numpy": (HASH,)}


@pytest.mark.parametrize("text", ["", "a = 1", "lock-version = '1.0'\npackages = [1]", "[broken"])
def test_other_files_are_refused_as_locks(tmp_path, text):
    with pytest.raises(ConfigError):
        read_lock(write(tmp_path, "uv.lock", text))
