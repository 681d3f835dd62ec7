"""The configuration: every key of fleetbuild.yml, with its default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    WithJsonSchema,
    model_validator,
)

from fleetbuild.models._base import Frozen

SectionT = TypeVar("SectionT", bound=Frozen)

_PERCENTAGE = r"(100|[1-9]?\d)%"


def _share(value: object) -> object:
    number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not number and not (isinstance(value, str) and re.fullmatch(_PERCENTAGE, value)):
        raise ValueError('a number or a percentage belongs here, such as 2 or "25%"')
    return value


_SHARE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": f"^{_PERCENTAGE}$"},
    ]
}
Share = Annotated[int | str, BeforeValidator(_share), WithJsonSchema(_SHARE_SCHEMA)]


def _serial(value: object) -> object:
    sizes = value if isinstance(value, list | tuple) and value else [value]
    for size in map(_share, sizes):
        if size in (0, "0%"):
            raise ValueError("at least 1 node belongs here")
    return tuple(value) if isinstance(value, list) else value


Serial = Annotated[
    int | str | tuple[int | str, ...],
    BeforeValidator(_serial),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                _SHARE_SCHEMA["anyOf"][1],
                {"type": "array", "items": _SHARE_SCHEMA, "minItems": 1},
            ]
        }
    ),
]


def _part(share: int | str, of: int) -> float:
    return share if isinstance(share, int) else of * int(share.rstrip("%")) / 100


class Grouping(Frozen):
    """How nodes are put into groups."""

    rungs: Literal["recipe", "detected"] = Field(
        "recipe",
        description="recipe: separate only rungs that matter to the packages; detected: separate "
        "every rung",
    )
    optimize_for: Literal["auto", "compatibility", "fp32", "int8", "bf16"] = Field(
        "auto",
        description="auto: each group's best rung; compatibility: as few wheel sets as possible, "
        "at the rung that all nodes have; fp32: a limit gives up CPU speed last; int8, bf16: as "
        "fp32, and rungs that matter only to this arithmetic count too",
    )
    max_wheel_sets: int | None = Field(
        None, ge=1, description="the most wheel sets: groups are merged to reach it at least cost"
    )

    @property
    def merges(self) -> str | None:
        """The key that asks to merge groups, if one does."""
        if self.max_wheel_sets is not None:
            return "max_wheel_sets"
        return "optimize_for: compatibility" if self.optimize_for == "compatibility" else None


class Build(Frozen):
    """How and where wheels are built."""

    policy: Literal["targeted", "auto", "published"] = Field(
        "targeted",
        description="targeted: build the packages under packages: for each group, and take what "
        "files list as published where it runs, else build it; auto: take any package as "
        "published where it runs; published: never build",
    )
    only: tuple[str, ...] | None = Field(
        None,
        description="with policy: targeted, the packages to build for each group, wherever they "
        "are named; default: the ones under packages:",
    )
    builders: str = Field("representative", description="representative, or a host pattern")
    cache: Literal["ccache", "sccache", "none"] = Field("ccache", description="the compiler cache")
    isolation: Literal["required", "preferred", "off"] = Field(
        "preferred",
        description="whether builds run in namespaces of their own, without network and other "
        "folders; preferred: where the builder allows it; required: else the plan blocks",
    )
    blas: Literal["mkl", "openblas"] | None = Field(
        None,
        description="the linear algebra of torch and numpy; default: the recipe's choice (torch: "
        "mkl on x86-64, openblas on Arm; numpy: openblas)",
    )
    container: str | None = Field(
        None,
        pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]*$",
        description="the image that builds run in on nodes reached by SSH, by podman or docker, "
        "such as quay.io/pypa/manylinux_2_28_x86_64; it determines the Python, the C library and "
        "the compilers of builds",
    )
    image: str | None = Field(
        None,
        pattern=r"^[a-z0-9][A-Za-z0-9._/:@-]*$",
        description="for clusters without SSH: the image that builds run in, such as "
        "python:3.12-bookworm; it determines the Python and the C library",
    )
    libc: str | None = Field(
        None,
        pattern=r"^(glibc|musl) [0-9]+(\.[0-9]+)+$",
        description='the C library of that image, such as "glibc 2.28", if its name does not show '
        "it",
    )

    @model_validator(mode="after")
    def _only_of_targeted(self) -> Build:
        if self.only is not None and self.policy != "targeted":
            raise ValueError(f"only: has no meaning with policy: {self.policy}")
        return self


class Install(Frozen):
    """Where releases live on the nodes."""

    path: str = Field(
        "/opt/fleetbuild", pattern=r"^/[A-Za-z0-9._+/-]+$", description="an absolute path"
    )
    keep: int = Field(
        2,
        ge=1,
        description="how many releases stay on a node; the current and the previous one always"
        " stay, and so does a release that is in use",
    )


class Hook(Frozen):
    """What runs on nodes before or after they switch to another release."""

    playbook: str = Field(
        min_length=1,
        description="a playbook, run on the nodes by this inventory; its path is relative to "
        "fleetbuild.yml",
    )
    timeout: int = Field(
        300, ge=1, le=86400, description="seconds after which it is ended and counts as failed"
    )

    def __str__(self) -> str:
        return f"playbook {self.playbook}"


class Rollout(Frozen):
    """How an apply goes through the nodes of a group."""

    canary: int = Field(
        1, ge=0, description="how many nodes of a group go first; the weakest are chosen"
    )
    serial: Serial = Field(
        "25%",
        description="how many nodes of a group go at a time: a number, a percentage of the group, "
        "or a list of them, such as [1, 5, 30%]: its last entry is repeated",
    )
    max_fail: Share = Field(
        "10%", description="if more nodes of a group than this fail, the rest are not changed"
    )
    max_unreachable: Share = Field(
        "25%",
        description="if more nodes of a group than this stop answering during its rollout, the "
        "rest are not changed; a percentage counts as one node at least",
    )
    before: Hook | None = Field(
        None,
        description="what runs for a node before it switches to another release, such as a drain; "
        "if it fails, the node does not switch",
    )
    after: Hook | None = Field(
        None,
        description="what runs for a node after the switch, and after a switch or a `before` that "
        "failed",
    )

    @property
    def steps(self) -> tuple[int | str, ...]:
        """The entries of `serial`."""
        return self.serial if isinstance(self.serial, tuple) else (self.serial,)

    def batches(self, nodes: int) -> Iterator[int]:
        """Yield, without end, how many of this number of nodes go at a time after the canaries."""
        for step in chain(self.steps, repeat(self.steps[-1])):
            yield max(1, int(_part(step, nodes)))

    def failures(self, nodes: int) -> int:
        """Return how many of this number of nodes may fail before the rollout stops."""
        return int(_part(self.max_fail, nodes))

    def losses(self, nodes: int) -> int:
        """Return how many of this number of nodes may stop answering before the rollout stops."""
        if self.max_unreachable in (0, "0%"):
            return 0
        return max(1, int(_part(self.max_unreachable, nodes)))


# Names in install.path besides the folders of named releases.
_LAYOUT = ("current", "history", "releases", "wheels")


def _free(name: str) -> str:
    if name.removesuffix(".new") in _LAYOUT:
        raise ValueError(
            f"{', '.join(_LAYOUT)} are fleetbuild's own names under install.path; choose another"
        )
    return name


PYTORCH = "pytorch"  # in `index`: PyTorch's own index for the CUDA of a group


class Config(Frozen):
    """fleetbuild.yml."""

    release: Annotated[str, AfterValidator(_free)] = Field(
        "default",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="the release's name, of letters, digits, dots, dashes and underscores",
    )
    packages: tuple[str, ...] = Field(
        (),
        description="the packages of the release: name==version, a range such as name>=1.2, "
        "name[extra], a path, or name @ git+https://…@ref; a plan holds the exact version",
    )
    requirements: tuple[str, ...] = Field(
        (), description="requirements files, whose packages are the release's too"
    )
    constraints: tuple[str, ...] = Field(
        (), description="constraints files, which bound the versions of all that is installed"
    )
    groups: tuple[str, ...] = Field(
        (), description="dependency groups or extras of pyproject.toml, or groups of lock:"
    )
    lock: str | None = Field(
        None,
        min_length=1,
        description="a uv.lock or pylock.toml: its versions are taken, and its packages if none "
        "are named otherwise",
    )
    python: str | None = Field(
        None,
        pattern=r"^(/\S+|3\.[0-9]+t?)$",
        description='a version, such as "3.11" or "3.13t" (free-threaded), or a path; default: '
        "each node's python3; if this is in a virtual environment, the interpreter behind it",
    )
    index: tuple[str, ...] = Field(
        (),
        description="extra indexes and find-links, used in this order before the user's own; the "
        "first index that has a package serves it; pytorch: PyTorch's own index for the CUDA of "
        "each group, for torch and its companions",
    )
    package_index: dict[str, str] = Field(
        {},
        description="for packages that come only from one index: a package's name, and its index",
    )
    exclude_newer: str | None = Field(
        None,
        pattern=r"^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}Z)?$",
        description="ignore files that were uploaded later, such as 2026-01-31; then indexes "
        "without upload times are not used",
    )
    allow_files: dict[str, tuple[str, ...]] = Field(
        {},
        description="for wheels that others built: a package's name, and patterns of files to "
        "allow in its wheel although the audit refuses them, such as NAME.pth",
    )
    mirrors: dict[str, str] = Field(
        {},
        description="for sources in git and archives: the beginning of an address, and its "
        "replacement",
    )
    targets: tuple[str, ...] = Field(
        (),
        description="kinds of machines to build for, such as sm89-avx2-cp311, although no node is "
        "of that kind; with targets, nodes only build, and nothing is installed",
    )
    cuda: str | None = Field(
        None,
        pattern=r"^[0-9]{1,2}\.[0-9]{1,2}$",
        description='the CUDA toolkit to build with, such as "12.6"; default: the best one',
    )
    cuda_ptx: bool = Field(
        False,
        description="add PTX of a group's newest SM to its wheels; a newer GPU's driver compiles "
        "it, so the larger wheels also run on future GPUs",
    )
    grouping: Grouping = Grouping()
    build: Build = Build()
    install: Install = Install()
    rollout: Rollout = Rollout()

    # The folder of the file: its paths, and the user's recipes, are relative to it.
    _folder: str | None = PrivateAttr(default=None)

    def section(self, kind: type[SectionT]) -> SectionT:
        """Return the section of an extension; with its defaults if the file has none."""
        found = (value for _, value in self if isinstance(value, kind))
        return next(found, None) or kind()

    def with_section(self, key: str, section: Frozen) -> Config:
        """Return the same configuration with another section of an extension."""
        return self.model_copy(update={key: section})

    @property
    def signs(self) -> bool:
        """Whether the section of an extension says that releases are signed."""
        return any(getattr(value, "signs", False) for _, value in self)

    @property
    def folder(self) -> str | None:
        """The folder of the file that this was read from, if any."""
        return self._folder

    def within(self, folder: str) -> Config:
        """The same configuration, as read from a file in this folder."""
        config = self.model_copy()
        config._folder = folder
        return config
