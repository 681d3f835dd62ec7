"""Read the facts that a recipe needs from a source, without running any of its code.

In: an sdist, archive or tree. Out: a `SourceSurvey`: GPU code, build system, requirements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fleetbuild.models._base import Frozen
from fleetbuild.store.sources import (
    SourceMetadata,
    read_strange,
    read_texts,
    reading,
    requirements_of_metadata,
    source_files,
)

_GPU_FILE = re.compile(r"\.(cu|cuh|hip)$")
_COMPILED_FILE = re.compile(r"\.(c|cc|cpp|cxx|pyx|rs|f90|cu)$")
# Folders whose files are not part of what a build compiles.
_ASIDE = re.compile(r"(^|/)(tests?|testing|docs?|examples?|benchmarks?|benchs?)/")
_TORCH_EXTENSION = re.compile(r"\b(CUDAExtension|CppExtension|HIPExtension|cpp_extension)\b")
_CUDA_EXTENSION = re.compile(r"\b(CUDAExtension|HIPExtension)\b")
_CMAKE_LANGUAGES = re.compile(r"enable_language\s*\(|\bLANGUAGES\b")
_CMAKE_CUDA = re.compile(r"\b(CUDA|HIP)\b")
_CMAKE_PACKAGE = re.compile(r"find_package\s*\(\s*(CUDA|CUDAToolkit|hip)\b")
_GPU_REQUIREMENT = re.compile(r"(torch|cupy|nvidia|cuda|triton|pycuda)\b", re.IGNORECASE)
# Of pure packages. Other backends compile, or are not known.
_PURE_BACKENDS = ("setuptools.build_meta", "hatchling.", "flit_core.", "flit.", "poetry.core.",
                  "pdm.backend", "uv_build")  # fmt: skip
_COMPILING = {"cython", "cffi", "pybind11", "nanobind", "cmake", "ninja", "numpy", "torch",
              "scikit-build", "scikit-build-core", "meson-python", "maturin", "setuptools-rust",
              "mypy", "mypyc"}  # fmt: skip
_EXTENSIONS = re.compile(r"ext[-_]modules|\bExtension\(|cffi_modules|build_ext|mypycify|CMake")
_CRATES = "registry+"  # in Cargo.lock: a crate of an index
_TEXTS = ("PKG-INFO", "pyproject.toml", "setup.py", "setup.cfg", "CMakeLists.txt", "Cargo.toml")
_CARGO = ("Cargo.toml", "Cargo.lock", ".cargo/config.toml", ".cargo/config")


class SourceSurvey(Frozen):
    """The facts about a build that the files of its source show."""

    metadata: SourceMetadata
    requires: tuple[str, ...] | None = None  # run-time requirements; None: known only to its build
    gpu_files: tuple[str, ...] = ()  # CUDA and HIP sources
    compiled: bool = False  # it has sources to compile
    torch_extension: bool = False  # setup.py uses torch.utils.cpp_extension
    cuda_extension: bool = False  # and names CUDAExtension
    cmake_cuda: bool = False  # CMakeLists.txt asks for CUDA or HIP
    rust: bool = False
    crates_missing: bool = False  # cargo would download crates that the source does not contain
    extensions: bool = False  # its build files speak of extension modules or CMake

    @property
    def pure(self) -> bool:
        """Whether nothing is compiled: one wheel serves every CPU."""
        needed = {_name(each) for each in self.metadata.build_requirements}
        return (
            not (self.compiled or self.rust or self.gpu_code or self.extensions)
            and self.metadata.backend.startswith(_PURE_BACKENDS)
            and not needed & _COMPILING
        )

    @property
    def against_torch(self) -> bool:
        """Whether its build imports torch."""
        needed = {_name(each) for each in self.metadata.build_requirements}
        return self.torch_extension or "torch" in needed

    @property
    def built_by_cargo(self) -> bool:
        """Whether its build is cargo's."""
        backend, needed = self.metadata.backend, self.metadata.build_requirements
        return backend == "maturin" or "setuptools-rust" in map(_name, needed)

    @property
    def gpu_code(self) -> tuple[str, ...]:
        """The signs that it has GPU code, as clauses."""
        signs = []
        if self.gpu_files:
            signs.append(f"CUDA or HIP files: {len(self.gpu_files)}, such as {self.gpu_files[0]}")
        if self.cuda_extension:
            signs.append("setup.py uses CUDAExtension")
        if self.cmake_cuda:
            signs.append("CMakeLists.txt asks for CUDA or HIP")
        return tuple(signs)

    @property
    def gpu_requirements(self) -> tuple[str, ...]:
        """Its requirements that suggest GPU code. Those at run time count if it is compiled."""
        stated = (self.requires or ()) if self.compiled else ()
        needed = {*self.metadata.build_requirements, *stated}
        return tuple(sorted(each for each in needed if _GPU_REQUIREMENT.match(each)))


def survey_source(path: Path) -> SourceSurvey:
    """Return the facts that the files of an sdist, archive or tree show, without running them."""
    return SourceSurvey.model_validate(read_strange(survey_here, path))


def survey_here(path: Path) -> SourceSurvey:
    """Read the files in this process, the separate one."""
    names: list[str] = []
    texts: dict[str, str] = {}
    with reading(path):
        for name, read in source_files(path):
            names.append(name)
            if name in _TEXTS or name.endswith(_CARGO):
                texts[name] = read()
    metadata = read_texts(texts, str(path))
    setup, cmake = texts.get("setup.py", ""), texts.get("CMakeLists.txt", "")
    parts = [name for name in names if not _ASIDE.search(name)]
    return SourceSurvey(
        metadata=metadata,
        requires=_requires(metadata, texts.get("PKG-INFO", "")),
        gpu_files=tuple(sorted(name for name in parts if _GPU_FILE.search(name))),
        compiled=any(_COMPILED_FILE.search(name) for name in parts),
        torch_extension=bool(_TORCH_EXTENSION.search(setup)),
        cuda_extension=bool(_CUDA_EXTENSION.search(setup)),
        cmake_cuda=_asks_for_gpu(cmake),
        rust=any(name.endswith("Cargo.toml") for name in texts),
        crates_missing=_crates_missing(texts),
        extensions=bool(cmake) or any(_EXTENSIONS.search(text) for text in texts.values()),
    )


def _crates_missing(texts: Mapping[str, str]) -> bool:
    """Return whether a Cargo.lock names crates of an index and no configuration replaces it."""
    locks = [text for name, text in texts.items() if name.endswith("Cargo.lock")]
    settings = [text for name, text in texts.items() if ".cargo/" in name]
    return any(_CRATES in text for text in locks) and not any(
        "replace-with" in text for text in settings
    )


def _asks_for_gpu(cmake: str) -> bool:
    """Return whether a CMakeLists.txt enables CUDA or HIP, or looks for it."""
    text = re.sub(r"#.*", "", cmake)
    commands = text.split(")")  # so that each is searched once
    named = ((each, _CMAKE_LANGUAGES.search(each)) for each in commands)
    return bool(_CMAKE_PACKAGE.search(text)) or any(
        match and _CMAKE_CUDA.search(each, match.end()) for each, match in named
    )


def _name(requirement: str) -> str:
    try:
        return canonicalize_name(Requirement(requirement).name)
    except InvalidRequirement:
        return ""


def _requires(metadata: SourceMetadata, pkg_info: str) -> tuple[str, ...] | None:
    """Return the run-time requirements that a source states, without extras; None without any.

    A PKG-INFO from before static metadata may name some, and a setup.py of that time leaves them
    out, so that none say nothing.
    """
    if metadata.requires is not None:
        return _valid(metadata.requires)
    headers = HeaderParser().parsestr(pkg_info)
    if "requires-dist" in map(str.lower, headers.get_all("Dynamic") or ()):
        return None
    return _valid(requirements_of_metadata(pkg_info)[0]) or None


def _valid(requirements: Iterable[object]) -> tuple[str, ...]:
    """Return the valid requirements, without extras. A recipe would render braces."""
    texts = [text for text in map(str, requirements) if _name(text) and "{" not in text]
    valid = map(Requirement, texts)
    return tuple(sorted(str(each) for each in valid if "extra" not in str(each.marker)))
