"""`fleetbuild init`: write a commented fleetbuild.yml and inventory.yml.

A test compares CONFIG with the model, key by key.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fleetbuild.errors import UsageError
from fleetbuild.files import raise_if_full
from fleetbuild.models.schemas import editor_comment

CONFIG = """\
# fleetbuild.yml: fleetbuild reads it beside the inventory, or where --config says.
# Every key is optional; commented lines show the defaults.

packages:                       # built for each group; one environment for all
  - hnswlib==0.8.0

# requirements: []              # files of packages to install: as published where that runs
# constraints: []               # constraints files, which bound the versions of all packages
# groups: []                    # dependency groups or extras of pyproject.toml, or groups of lock
# lock: null                    # a uv.lock or pylock.toml, whose versions are taken
# release: default              # releases with different names can be installed side by side
# python: "3.11"                # default: each node's own python3
# index: []                     # extra package indexes and find-links, or: pytorch
# package_index: {}             # packages that come only from one index: name -> index
# exclude_newer: null           # ignore files that were uploaded later, such as 2026-01-31
# allow_files: {}               # published wheels: name -> files to allow though the audit refuses
# targets: []                   # plan wheels for these machines: sm89-avx2-cp311; nodes only build
# mirrors: {}                   # other places for sources: prefix of an address -> replacement
# cuda: null                    # pin a CUDA toolkit version
# cuda_ptx: false               # true: add PTX of each group's newest SM, for newer GPUs

# grouping:
#   rungs: recipe               # recipe: only rungs that matter to the packages | detected: all
#   optimize_for: auto          # auto | compatibility | fp32 | int8 | bf16
#   max_wheel_sets: null        # the most wheel sets

# build:
#   policy: targeted            # targeted | auto (a published wheel if it fits) | published
#   only: null                  # [NAME]: build these alone for each group, wherever they are named
#   builders: representative    # or a host pattern: strong machines that build for others
#   cache: ccache               # ccache | sccache | none
#   isolation: preferred        # required | preferred | off: builds without network
#   blas: null                  # mkl | openblas: for torch and numpy, in place of the recipe's
#   container: null             # the image that builds run in on nodes, by podman or docker
#   image: null                 # for clusters without SSH: the image that builds run in
#   libc: null                  # the image's C library, if its name does not show it: glibc 2.28

# install:
#   path: /opt/fleetbuild       # must be writable by the login user, or become is used
#   keep: 2                     # releases that stay on a node

# rollout:
#   canary: 1                   # how many nodes of each group go first; the weakest are chosen
#   serial: "25%"               # nodes at a time; a list, such as [1, 5, "30%"], as in Ansible
#   max_fail: "10%"             # if more nodes of a group fail, its rollout stops
#   max_unreachable: "25%"      # the same for nodes that stop answering
#   before: null                # {playbook: drain.yml}; runs before a node switches
#   after: null                 # {playbook: FILE}; runs once a node has switched

# signing:
#   key: null                   # an SSH key that signs releases
#   fleet: null                 # production: nodes can refuse releases of other fleets

# kubernetes:
#   label_domain: fleetbuild.dev
#   labels: files               # files | nfd (over SSH) | api (through the kubeconfig)
#   node_name: "{{ kubernetes_node | default(inventory_hostname) }}"
#   package_labels: false       # true: a label with the version of each planned package
#   pods:                       # for every pod and Job that is emitted
#     labels: {}
#     image_pull_secrets: []
#     tolerations: []
#     priority_class: null
#     cpu_limit: null
#     ttl: null                 # seconds after which a finished Job is deleted
#     queue: null               # a LocalQueue of Kueue
"""

INVENTORY = """\
# An ordinary Ansible inventory: groups, group_vars, vault, become, ProxyJump all work as usual.
all:
  hosts:
    this-machine:
      ansible_connection: local
    # gpu-01:
    #   ansible_host: 10.0.0.11
    #   ansible_user: admin
  # vars:
  #   ansible_ssh_common_args: -o ProxyJump=bastion.example.org
  #   ansible_become: true       # if installing packages or writing to the path needs root

# Overrides for a host, as variables:
#   fleetbuild_isa: avx2         # the highest rung to use
#   fleetbuild_sms: ["8.6"]      # replaces the SMs that the probe found
#   fleetbuild_python: "3.11"
#   fleetbuild_builder: true     # builds for other nodes
#   fleetbuild_skip: true        # no command contacts this node
"""


def init(folder: Path | str = ".") -> tuple[Path, Path]:
    """Write a commented fleetbuild.yml and inventory.yml; return their paths."""
    folder = Path(folder)
    config, inventory = folder / "fleetbuild.yml", folder / "inventory.yml"
    for file in (config, inventory):
        if file.exists():
            raise UsageError(
                f"{file} exists already. Nothing was written.",
                "Name another folder, and move what you need from there: fleetbuild init DIR",
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(editor_comment("config") + CONFIG, encoding="utf-8")
        inventory.write_text(INVENTORY, encoding="utf-8")
    except OSError as problem:
        for file in (config, inventory):  # an empty one would keep the next run from writing
            with contextlib.suppress(OSError):
                file.unlink()
        raise_if_full(problem)
        raise UsageError(
            f"{problem.filename} cannot be written: {problem.strerror}.",
            "Name a folder that you can write to: fleetbuild init DIR",
        ) from problem
    return config, inventory
