"""pyproject.toml declares every package that the code imports, and no other."""

import ast
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Imported on nodes, on a GPU, in builds, by fuzzing or a benchmark: their environments bring them.
ELSEWHERE = {"ansible", "atheris", "bitsandbytes", "libtorrent", "setuptools", "torch"}
PROGRAMS = {"ansible-core"}  # run as programs; importing ansible is forbidden by a contract


def imported(sources: Iterable[Path]) -> set[str]:
    """The top-level names that these files import from outside of the repository."""
    names: set[str] = set()
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    files = [
        path for folder in ("tests", "docs", "plugins") for path in (ROOT / folder).rglob("*.py")
    ]
    ours = {path.stem for path in files} | {"builder", "fleetbuild", "plugin_utils", "tests"}
    return names - sys.stdlib_module_names - ours - {"__future__"}


def distributions(names: Iterable[str]) -> set[str]:
    known = packages_distributions()
    return {canonicalize_name(known[name][0]) for name in names}


def declared(requirements: Iterable[object]) -> set[str]:
    """The names of these requirements, without included groups."""
    texts = [each for each in requirements if isinstance(each, str)]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def test_every_import_of_the_package_is_declared() -> None:
    project = PROJECT["project"]
    optional = declared(chain(*project["optional-dependencies"].values()))
    needed = distributions(imported((ROOT / "fleetbuild").rglob("*.py")) - ELSEWHERE)
    assert needed | PROGRAMS == declared(project["dependencies"]) | optional


def test_every_import_of_the_tests_and_docs_is_declared() -> None:
    groups = PROJECT["dependency-groups"]
    known = declared(PROJECT["project"]["dependencies"]) | declared(chain(*groups.values()))
    files = [
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "docs").rglob("*.py"),
        *(ROOT / "benchmarks").rglob("*.py"),
    ]
    assert distributions(imported(files) - ELSEWHERE - {"benchmarks"}) - known == set()


def test_every_dependency_has_a_lowest_version() -> None:
    for text in PROJECT["project"]["dependencies"]:
        assert any(each.operator in (">=", "==") for each in Requirement(text).specifier), text


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "fleetbuild" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
