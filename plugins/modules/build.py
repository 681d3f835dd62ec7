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
  key: {description: The artifact key; names what is built., type: str}
  wheel_version: {description: The version with its local label., type: str}
  source: {description: Name of the archive or folder in C(in)., type: str}
  source_sha256: {description: Hash of the archive., type: str, default: ""}
  requirements: {description: Build requirements in C(in), type: list, elements: dict, default: []}
  environment: {description: Variables of the build, type: dict, default: {}}
  config_settings: {description: For the build backend (PEP 517), type: dict, default: {}}
  files: {description: Texts by name, laid beside the source, type: dict, default: {}}
  patches: {description: Each a name and a text, type: list, elements: dict, default: []}
  cuda: {description: The CUDA toolkit to build with, type: str, default: ""}
  gcc: {description: Major version of the gcc to build with, type: str, default: ""}
  pins: {description: What the wheel requires exactly, type: list, elements: str, default: []}
  bundle: {description: Put the system's libraries into the wheel, type: bool, default: false}
  jobs: {description: Parallel jobs., type: int, default: 1}
  python: {description: The interpreter to build for., type: path}
  cache: {description: Compiler cache, type: str, default: ccache, choices: [ccache, sccache, none]}
  cache_dir: {description: Where it keeps its files., type: path}
  timeout: {description: Seconds that a build may take., type: int, default: 14400}
  poll: {description: Seconds that C(waited) waits for the end., type: int, default: 5}
author: The fleetbuild authors
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ..module_utils.builder.wheel_build import Build, BuildFailed


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["prepared", "built", "waited"], "required": True},
            "dir": {"type": "path", "required": True},
            "key": {"type": "str", "no_log": False},
            "wheel_version": {"type": "str"},
            "source": {"type": "str"},
            "source_sha256": {"type": "str", "default": ""},
            "requirements": {"type": "list", "elements": "dict", "default": []},
            "environment": {"type": "dict", "default": {}},
            "config_settings": {"type": "dict", "default": {}},
            "files": {"type": "dict", "default": {}},
            "patches": {"type": "list", "elements": "dict", "default": []},
            "cuda": {"type": "str", "default": ""},
            "gcc": {"type": "str", "default": ""},
            "pins": {"type": "list", "elements": "str", "default": []},
            "bundle": {"type": "bool", "default": False},
            "jobs": {"type": "int", "default": 1},
            "python": {"type": "path"},
            "cache": {"choices": ["ccache", "sccache", "none"], "default": "ccache"},
            "cache_dir": {"type": "path"},
            "timeout": {"type": "int", "default": 14400},
            "poll": {"type": "int", "default": 5},
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
