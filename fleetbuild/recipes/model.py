"""The recipe: how a package is built for a target. It is data; rendering is in render.py."""

from __future__ import annotations

import re
from typing import Literal

from jinja2 import TemplateSyntaxError
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name
from pydantic import Field, field_validator

from fleetbuild.hardware.rungs import RUNGS
from fleetbuild.models._base import Frozen
from fleetbuild.recipes.templates import ENVIRONMENT

GENERIC = "generic"
_NATIVE = re.compile(r"-m(arch|cpu|tune)=native")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Recipe(Frozen):
    """How a package is built for a target."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    description: str = ""
    packages: tuple[str, ...] = ()  # those that it is for; the generic one serves all others
    rungs: tuple[str, ...] = Field(min_length=1)  # that can make a difference to the wheel
    cuda: Literal[False] = False  # whether it builds for GPUs; this version builds for CPUs
    libc: tuple[Literal["glibc", "musl"], ...] = Field(("glibc", "musl"), min_length=1)
    sources: tuple[Literal["sdist", "tree"], ...] = Field(("sdist", "tree"), min_length=1)
    build_requirements: tuple[str, ...] = ()  # beyond those that the source declares
    # What a build backend asks for only once it runs, which is too late for a lock.
    backend_requirements: dict[str, tuple[str, ...]] = {}
    environment: dict[str, str] = {}  # Jinja2 over the target; CFLAGS and CXXFLAGS come by default
    job_memory_gb: float = Field(1.0, gt=0)  # what one compiler process may need
    disk_gb: float = Field(1.0, gt=0)  # of the workspace, while it builds
    import_names: tuple[str, ...] = ()  # default: the top-level names of the wheel
    checks: tuple[str, ...] = ()  # Python snippets that must run on every node

    def serves(self, package: str) -> bool:
        """Whether the recipe is for this package."""
        return canonicalize_name(package) in self.canonical_packages

    @property
    def canonical_packages(self) -> frozenset[NormalizedName]:
        """The packages that it is for, as indexes spell them."""
        return frozenset(canonicalize_name(package) for package in self.packages)

    @field_validator("rungs")
    @classmethod
    def _known(cls, rungs: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [rung for rung in rungs if rung not in RUNGS]
        if unknown:
            raise ValueError(f"{unknown[0]} is no rung; there are {', '.join(RUNGS)}")
        return rungs

    @field_validator("build_requirements")
    @classmethod
    def _requirements(cls, requirements: tuple[str, ...]) -> tuple[str, ...]:
        for requirement in requirements:
            try:
                Requirement(requirement)
            except InvalidRequirement as problem:
                raise ValueError(f"{requirement!r} is no requirement: {problem}") from None
        return requirements

    @field_validator("environment")
    @classmethod
    def _environment(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if _NATIVE.search(value):
                # It would build for whichever machine builds.
                raise ValueError(f"{name} says native; a build belongs to its target")
            try:
                ENVIRONMENT.parse(value)
            except TemplateSyntaxError as problem:
                raise ValueError(f"{name} is no Jinja2 template: {problem}") from None
        return environment

    @field_validator("checks")
    @classmethod
    def _snippets(cls, checks: tuple[str, ...]) -> tuple[str, ...]:
        for snippet in checks:
            try:
                compile(snippet, "<check>", "exec")
            except SyntaxError as problem:
                raise ValueError(f"is not Python in its line {problem.lineno}") from None
        return checks
