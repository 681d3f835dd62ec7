"""The recipe: how a package is built for a target.

In: parsed YAML. Out: a validated `Recipe`. Its templates are rendered by render.py.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from jinja2 import TemplateSyntaxError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from fleetbuild.hardware.gpus import sm_order
from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models._base import Frozen
from fleetbuild.recipes.templates import ENVIRONMENT, LONGEST

GENERIC = "generic"
_NATIVE = re.compile(r"-m(arch|cpu|tune)=native")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"\w[\w.-]*(/\w[\w.-]*)*", re.ASCII)


def _template(value: str) -> str:
    if len(value) > LONGEST:
        raise ValueError(f"a template of more than {LONGEST} characters")
    try:
        ENVIRONMENT.parse(value)
    except TemplateSyntaxError as problem:
        raise ValueError(f"not a Jinja2 template: {problem}") from None
    return value


Template = Annotated[str, AfterValidator(_template)]  # Jinja2 over what render.py says


class RecipeSource(Frozen):
    """Where the source is, if not in an sdist of the index: a git tag, or an archive."""

    git: Template | None = None
    ref: Template = "v{{ version }}"  # a tag, or a commit
    submodules: bool = True
    archive: Template | None = None  # its address
    sha256: dict[str, str] = {}  # version -> hash of the archive

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.git is None) == (self.archive is None):
            raise ValueError("must name either git or archive")
        return self


class Patch(Frozen):
    """A change to the source, for some versions and targets."""

    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")  # beside the recipe, in patches/
    versions: str = ""  # a version specifier: ">=2.0,<2.2"
    when: str = "true"  # a Jinja2 expression
    text: str = ""  # the content of the file

    @field_validator("versions")
    @classmethod
    def _specifier(cls, versions: str) -> str:
        try:
            return str(SpecifierSet(versions))
        except InvalidSpecifier as problem:
            raise ValueError(f"{versions!r} is not a version specifier: {problem}") from None


class WindowsBuild(Frozen):
    """What differs if the package is built on Windows with Microsoft's compiler (MSVC).

    The environment is the whole one. `files` replace the recipe's; requirements and checks are the
    recipe's own, whose templates see os == "windows".
    """

    environment: dict[str, Template] = {}
    config_settings: dict[str, Template] = {}
    files: dict[str, Template] = {}
    patches: tuple[Patch, ...] = ()
    # Folder of the source -> patterns of libraries to copy there, so that the wheel brings them.
    bundled: dict[str, tuple[Template, ...]] = {}
    system: dict[str, Template] = {}  # what has to be installed: name -> sentence; "" is left out


class Cost(Frozen):
    """The estimated cost of a wheel, used to compare wheel sets. Minutes are for 8 cores.

    A plan shows minutes if they were measured, and an estimate of an hour or more as an estimate.
    """

    minutes: float = Field(2, ge=0)  # to build it, without any GPU code
    per_sm_minutes: float = Field(1, ge=0)  # and for each SM
    size_mb: float = Field(5, ge=0)  # of the wheel, without any GPU code
    per_sm_mb: float = Field(5, ge=0)  # and for each SM
    # Whether builds without GPU code were timed.
    measured: bool = False
    serial: bool = False  # more jobs do not make it faster


class Recipe(Frozen):
    """How a package is built for a target. Texts that are templates are rendered by render.py."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    # The recipe whose values are the defaults of this one; mappings are merged key by key.
    extends: str | None = None
    description: str = ""
    packages: tuple[str, ...] = ()  # packages it builds; the generic recipe builds all others
    rungs: tuple[str, ...] = Field(min_length=1)  # rungs that can change the wheel
    # Rungs that matter only with this grouping.optimize_for.
    rungs_for: dict[Literal["int8", "bf16"], tuple[str, ...]] = {}
    cuda: bool = False  # whether it builds GPU code for nodes with a GPU
    # The oldest SM it has code for. If set, nodes without such a GPU are blocked.
    min_sm: str | None = Field(None, pattern=r"^\d{1,2}\.\d$")
    # Whether NVIDIA's wheels suffice in place of an installed CUDA toolkit, and which libraries
    # they need beside compiler and runtime, as extras of cuda-toolkit. None: not known to suffice.
    toolkit_wheels: tuple[Annotated[str, Field(pattern=r"^[a-z]+$")], ...] | None = None
    # The oldest CUDA that it builds with.
    cuda_from: str | None = Field(None, pattern=r"^\d{1,2}\.\d$")
    libc: tuple[Literal["glibc", "musl"], ...] = Field(("glibc", "musl"), min_length=1)
    sources: tuple[Literal["sdist", "tree"], ...] = Field(("sdist", "tree"), min_length=1)
    # Why fleetbuild cannot build the package, as a clause; only its published wheels serve then.
    not_buildable: Template = ""
    source: RecipeSource | None = None  # default: the index's sdist, or the user's own tree
    # Run-time requirements, if its source states them only once it is built.
    requires: tuple[Template, ...] | None = None
    # Libraries beyond the C and C++ library: the system's, or copies inside the wheel.
    libraries: Literal["system", "bundle"] = "system"
    # System libraries that no wheel brings, by their name in the role toolchain (cuda: part of the
    # toolkit). The builder needs them with headers; every node needs them.
    system_libraries: dict[str, Template] = {}
    # BLAS libraries that build.blas may choose from -> the architectures of each.
    blas: dict[Literal["mkl", "openblas"], tuple[str, ...]] = {}
    # Programs that the build calls beside compilers: name in the role toolchain -> oldest version,
    # or "" for any.
    tools: dict[str, str] = {}
    # Packages of the same release whose wheels are in its build environment. Its wheel is pinned
    # to their exact versions.
    built_against: tuple[str, ...] = ()
    # Architecture -> the lowest rung of its published wheels, if these choose code at run time; or
    # version specifier -> that rung, of which the first that fits counts. The machine code of other
    # published wheels has to be read.
    published: dict[str, str | dict[str, str]] = {}
    build_requirements: tuple[Template, ...] = ()  # beyond what the source declares
    # Backend -> requirements that it states only while it runs, too late for a lock.
    backend_requirements: dict[str, tuple[str, ...]] = {}
    variables: dict[str, Template] = {}  # values that several templates below use
    # CFLAGS and CXXFLAGS have defaults. A variable that renders to "" is not set.
    environment: dict[str, Template] = {}
    config_settings: dict[str, Template] = {}  # of PEP 517; "" is not passed on
    files: dict[str, Template] = {}  # written next to the source; {{ files }} is their folder
    patches: tuple[Patch, ...] = ()
    windows: WindowsBuild | None = None  # None: not known to build on Windows
    job_memory_gb: float = Field(1.0, gt=0)  # for one compiler process
    sm_job_memory_gb: float = Field(0.0, ge=0)  # and for each SM
    disk_gb: float = Field(1.0, gt=0)  # of the workspace, while it builds
    cost: Cost = Cost()
    # The only names that its wheel may bring to site-packages; default: any that is free.
    top_level: tuple[str, ...] = ()
    # Patterns of files to allow in its wheel though the audit refuses them, such as NAME.pth.
    allow_files: tuple[str, ...] = ()
    import_names: tuple[str, ...] = ()  # default: the top-level names of the wheel
    checks: tuple[Template, ...] = ()  # Python snippets that must run on every node

    def published_rung(self, arch: str, version: str) -> str | None:
        """Return the lowest rung of the published wheels of a version; None if not known."""
        rungs = self.published.get(arch, {})
        if isinstance(rungs, str):
            return rungs
        return next(
            (
                rung
                for versions, rung in rungs.items()
                if SpecifierSet(versions).contains(version, prereleases=True)
            ),
            None,
        )

    def rungs_when(self, optimize_for: str) -> tuple[str, ...]:
        """Return the rungs that can change the wheel with this optimize_for, weakest first."""
        extra = next((more for use, more in self.rungs_for.items() if use == optimize_for), ())
        named = {*self.rungs, *extra}
        return tuple(rung for rung in RUNGS if rung in named)

    def sms_of(self, sms: tuple[str, ...]) -> tuple[str, ...]:
        """Return the SMs of a node that its wheel has code for."""
        oldest = sm_order(self.min_sm or "0.0")
        return tuple(sm for sm in sms if self.cuda and sm_order(sm) >= oldest)

    def offers(self, blas: str | None, arch: str) -> bool:
        """Return whether it can build with this BLAS library on this architecture."""
        return any(blas == name and arch in archs for name, archs in self.blas.items())

    def serves(self, package: str) -> bool:
        """Return whether the recipe builds this package."""
        return canonicalize_name(package) in self.canonical_packages

    @property
    def canonical_packages(self) -> frozenset[NormalizedName]:
        """The packages it builds, with normalised names."""
        return frozenset(canonicalize_name(package) for package in self.packages)

    @field_validator("min_sm")
    @classmethod
    def _for_gpus(cls, oldest: str | None, info: ValidationInfo) -> str | None:
        if oldest and not info.data.get("cuda"):
            raise ValueError("needs cuda: true in the same recipe")
        return oldest

    @field_validator("tools")
    @classmethod
    def _versions(cls, tools: dict[str, str]) -> dict[str, str]:
        for name, oldest in tools.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
                raise ValueError(f"{name!r} is not the name of a program")
            if not re.fullmatch(r"(\d+(\.\d+)*)?", oldest, re.ASCII):
                raise ValueError(f"{name}: {oldest!r} is not a version such as 1.63")
        return tools

    @field_validator("rungs_for")
    @classmethod
    def _known_too(cls, rungs_for: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {use: cls._known(rungs) for use, rungs in rungs_for.items()}

    @field_validator("published")
    @classmethod
    def _known_rungs(
        cls, published: dict[str, str | dict[str, str]]
    ) -> dict[str, str | dict[str, str]]:
        for rungs in published.values():
            by_version = {"": rungs} if isinstance(rungs, str) else rungs
            cls._known(tuple(by_version.values()))
            for versions in by_version:
                try:
                    SpecifierSet(versions)
                except InvalidSpecifier as problem:
                    raise ValueError(
                        f"{versions!r} is not a version specifier: {problem}"
                    ) from None
        return published

    @field_validator("rungs")
    @classmethod
    def _known(cls, rungs: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [rung for rung in rungs if rung not in RUNGS]
        if unknown:
            raise ValueError(f"{unknown[0]} is not a rung; the rungs are {', '.join(RUNGS)}")
        return rungs

    @field_validator("build_requirements")
    @classmethod
    def _requirements(cls, requirements: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in requirements:
            if "{" in requirement:
                continue  # known once it is rendered
            try:
                Requirement(requirement)
            except InvalidRequirement as problem:
                raise ValueError(f"{requirement!r} is not a requirement: {problem}") from None
        return requirements

    @field_validator("environment")
    @classmethod
    def _environment(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of an environment variable")
            if _NATIVE.search(value):
                # The wheel would depend on the machine that builds it.
                raise ValueError(f"{name} names the native CPU; use {{{{ flags }}}} for the target")
        return environment

    @field_validator("files")
    @classmethod
    def _in_their_folder(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if not _FILE.fullmatch(name):
                raise ValueError(f"{name!r} is not a file name inside the folder")
        return files

    @field_validator("import_names")
    @classmethod
    def _importable(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not all(part.isidentifier() for part in name.split(".")):
                raise ValueError(f"{name!r} is not a module name")
        return names

    @field_validator("checks")
    @classmethod
    def _snippets(cls, checks: tuple[str, ...]) -> tuple[str, ...]:
        for snippet in checks:
            if "{{" in snippet or "{%" in snippet:
                continue  # Python once it is rendered
            try:
                compile(snippet, "<check>", "exec")
            except SyntaxError as problem:
                raise ValueError(f"not valid Python in line {problem.lineno}") from None
        return checks
