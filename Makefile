# `make` lists the targets. Everything is installed into .venv; Debian packages are named as they are.
SHELL := /bin/bash
PYTHON ?= python3
PYTEST_ARGS ?=
LAB ?= default
PODMAN ?= podman
IMAGE ?= localhost/fleetbuild
LIBTORRENT := $(CURDIR)/.cache/libtorrent
# What a build of torch leaves for the next run: some 20 GB.
FLEETBUILD_TORCH ?= $(HOME)/.cache/fleetbuild-torch
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PY := .venv/bin/python
# Tests start hundreds of Pythons: they must not compile everything again each time.
unexport PYTHONDONTWRITEBYTECODE

# What setup needs of the system beside python3 and make; the tests' packages are the lab's.
SETUP_PACKAGES := g++ git openssh-client
DEBIAN_PYTHON_PACKAGES := python3-venv python3-dev
COMPILER_PACKAGES := ^(gcc|clang)-[0-9]+(-aarch64-linux-gnu)?$$

# Where ansible-lint looks for collections; a link to this checkout makes it fleetbuild.core.
COLLECTION := .ansible/collections/ansible_collections/fleetbuild

.PHONY: help setup core guests demo test test-unit test-fleet test-molecule test-long soak test-gpu gpu-bundle test-torch test-lowest test-cores test-libraries fresh release-notes fuzz lint lab lab-down bench docs house packages image dist clean test-packages

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Every target but help and clean needs setup, and setup and the tests install the Debian packages that"
	@echo "are missing: with sudo, unless you are root. Each package is named before it is installed."

setup: .venv/.ready ## .venv with fleetbuild and what its development needs

.venv/.ready: pyproject.toml
	@echo "== setup: the system's packages"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "   $(PYTHON) is older than 3.11. Fix: make setup PYTHON=python3.12, say" >&2; exit 1; }
	@.ci/packages $(SETUP_PACKAGES)
	@[ "$$($(PYTHON) -c 'import sys; print(sys.base_prefix)')" != /usr ] || \
	  .ci/packages $(DEBIAN_PYTHON_PACKAGES)
	@echo "== setup: .venv ($$($(PYTHON) --version), about a minute the first time)"
	@[ -x $(PY) ] || $(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@
	@echo "== setup: done, .venv/bin/fleetbuild is there"

demo: setup ## the whole job on this machine: probe, plan, build, install, verify, manifests
	@echo "== demo: hnswlib for this machine, served below .fleetbuild/demo/opt"
	@mkdir -p .fleetbuild/demo
	@printf 'packages: [hnswlib==0.8.0]\ninstall: {path: %s}\n' '$(CURDIR)/.fleetbuild/demo/opt' > .fleetbuild/demo/fleetbuild.yml
	fleetbuild apply inventory/local.yml --config .fleetbuild/demo/fleetbuild.yml --state-dir .fleetbuild/demo --yes
	@echo "To use the wheel:              .fleetbuild/demo/opt/current/bin/python -c 'import hnswlib'"
	@echo "To run fleetbuild yourself:    export PATH=$(CURDIR)/.venv/bin:\$$PATH"
	@echo "Six real SSH nodes to try on:  make lab, then fleetbuild plan .lab/default/inventory.yml --package hnswlib==0.8.0"

test-packages: setup
	@echo "== tests: the system's packages"
	@.ci/packages $$($(PY) -c 'from tests.lab.podman import PACKAGES; print(*PACKAGES)')

test: test-packages ## all tests: unit, contract, fleet (real SSH nodes) and Molecule
	@echo "== tests: unit and contract; beside them fleet, and faults and Molecule, in the lab"
	@rm -f .coverage .coverage.*
	@$(PY) -m tests $(PYTEST_ARGS)
	@$(PY) -m coverage combine --quiet
	@$(MAKE) --no-print-directory coverage-of-pure-modules

test-unit: test-packages ## unit and contract tests, with the coverage of the pure modules
	@echo "== unit and contract tests"
	@$(PY) -m pytest tests/unit tests/extensions tests/hostile tests/contract --cov --cov-report= $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory coverage-of-pure-modules

.PHONY: coverage-of-pure-modules
coverage-of-pure-modules: # silent where it is enough, so that the tests' count stays the last line
	@mkdir -p .pytest_cache && $(PY) -m coverage report --show-missing --skip-covered --fail-under=95 \
	  > .pytest_cache/coverage.txt || { echo "== the pure modules' branch coverage is below 95 %"; cat .pytest_cache/coverage.txt; exit 1; }

# The others start processes for minutes and import nothing that these do not.
LOWEST := .cache/lowest-versions
LOWEST_TESTS := $(addprefix tests/unit/,audit hardware models plan probe recipes toolchains test_config.py) $(addprefix tests/extensions/,catalogue check kubernetes)

test-lowest: setup ## unit tests with the lowest versions of the dependencies that pyproject.toml allows
	@echo "== the lowest versions, in $(LOWEST)"
	@[ -x $(LOWEST)/bin/python ] || .venv/bin/uv venv --quiet --seed --python $(PY) $(LOWEST)
	@.venv/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable . --group unit
	@$(LOWEST)/bin/python -m pytest $(LOWEST_TESTS) -q -o filterwarnings=default $(PYTEST_ARGS)

test-cores: test-packages ## the oldest and the newest ansible-core on each Python that is here; PART=loading: some unit tests
	@echo "== ansible-core and Python: each pair has an environment in .cache/cores"
	@$(PY) -m tests.cores $(PART)

test-libraries: setup ## a conda environment, by conda's library from PyPI
	@$(PY) -m pip install --quiet --disable-pip-version-check --group libraries
	@$(PY) -m pytest tests/extensions/supply/test_conda_environment.py $(PYTEST_ARGS)

test-fleet: test-packages ## tests over real SSH nodes
	@echo "== fleet tests"
	@$(PY) -m pytest tests/fleet $(PYTEST_ARGS)

# FUZZ_RUNS=20000 make fuzz is a short one; READERS names some of them.
FUZZ_RUNS ?= 1000000
READERS ?= probe captures plan wheel manifest kubeconfig

# The guests are in a folder of their own; without it the core must do its whole job.
CORE := .cache/core
CORE_TESTS := $(addprefix tests/unit/,apply models plan recipes store toolchains test_config.py test_extension.py test_fleet.py)

core: setup ## the core without fleetbuild/extensions: its tests, and a wheel built and served on this machine
	@echo "== the core alone, in $(CORE)"
	@rm -rf $(CORE) && mkdir -p $(CORE)
	@git ls-files -z -- ':!fleetbuild/extensions' ':!tests/extensions' | xargs -0 cp --parents --target-directory $(CORE)
	@.venv/bin/uv venv --quiet --seed --python $(PY) $(CORE)/.venv
	@.venv/bin/uv pip install --quiet --python $(CORE)/.venv/bin/python --editable $(CORE) --group $(CORE)/pyproject.toml:unit
	@touch $(CORE)/.venv/.ready && $(MAKE) --no-print-directory -C $(CORE) demo
	@cd $(CORE) && .venv/bin/python -m pytest -q $(CORE_TESTS) $(PYTEST_ARGS)

guests: setup ## each guest deleted alone: what remains loads and passes its tests; GUESTS=nix for some
	@$(PY) -m tests.guests $(GUESTS)

fuzz: setup ## coverage-guided fuzzing of each reader of hostile input: FUZZ_RUNS inputs, hours by default
	@$(PY) -m pip install --quiet --disable-pip-version-check --group fuzz
	@mkdir -p .cache/fuzz
	@for reader in $(READERS); do \
	  $(PY) -m tests.hostile.fuzz $$reader --runs $(FUZZ_RUNS) 2> .cache/fuzz/$$reader.log || \
	    { tail -n 30 .cache/fuzz/$$reader.log >&2; exit 1; }; \
	done

test-molecule: test-packages ## every role's Molecule scenario
	@echo "== Molecule: every role's scenario, one after the other"
	@$(PY) -m pytest tests/molecule $(PYTEST_ARGS)

test-long: test-packages ## the tests that take longer than make test may
	@.ci/packages qemu-user-static cargo rustc
	@.ci/packages $$(apt-cache search --names-only '$(COMPILER_PACKAGES)' | cut -d' ' -f1)
	@echo "== long tests"
	@$(PY) -m pytest tests/foreign tests/fleet tests/simulation tests/unit/collection --long -m long $(PYTEST_ARGS)
	@echo "== the property tests, with 200 examples each"
	@$(PY) -m pytest tests/unit tests/hostile --long -m hypothesis $(PYTEST_ARGS)
	@echo "== every gcc and clang that this Debian has, asked about every rung"
	@$(PY) -m pytest tests/unit/hardware/test_rungs_compilers.py --long $(PYTEST_ARGS)

# The commands of the README on a bare system: SYSTEM=noble and WHAT=demo run a part of it.
SYSTEM ?= bookworm trixie noble
WHAT ?= demo test

fresh: test-packages ## the README's commands on a bare Debian 12 and 13 and Ubuntu 24.04, hours: SYSTEM=noble, WHAT=demo for a part
	@for system in $(SYSTEM); do $(PY) -m tests.fresh $$system $(WHAT) || exit 1; done

soak: test-packages ## every fault at every stage, and 300 random schedules: some 13 hours, RECORD=FILE to go on later; SOAK=read-only for some
	@echo "== faults on real SSH nodes"
	@$(PY) -m pytest tests/faults --soak $(if $(SOAK),-k '$(SOAK)') $(if $(RECORD),--record '$(RECORD)') $(PYTEST_ARGS)

test-gpu: setup ## on a machine with an NVIDIA GPU: probe, build, check and compute on it
	@echo "== GPU tests"
	@$(PY) -m pytest tests/gpu -v -rs $(PYTEST_ARGS)

gpu-bundle: setup ## dist/gpu-bundle.tar: what test-gpu needs on a machine without a network, under 64 MB
	@echo "== dist/gpu-bundle.tar"
	@$(PY) -m tests.gpu.bundle dist/gpu-bundle.tar $(addprefix --wheel ,$(GPU_WHEELS))

test-torch: test-packages ## a whole torch built for avx and used on an Ivy Bridge: hours, taken up where it stopped
	@echo "== torch 2.6.0 in $(FLEETBUILD_TORCH): its transcript is transcript.txt there"
	@FLEETBUILD_TORCH=$(FLEETBUILD_TORCH) FLEETBUILD_LAB_DIR=$(FLEETBUILD_TORCH)/lab \
	  $(PY) -m pytest tests/torch --long -x $(PYTEST_ARGS)

lint: setup ## ruff, mypy, import-linter, ansible-lint, yamllint, zizmor
	@echo "== ruff check" && ruff check .
	@echo "== ruff format --check" && ruff format --check .
	@echo "== mypy --strict" && mypy --strict -p fleetbuild && mypy --strict --explicit-package-bases -p tests.lab
	@# Tests that take long run seldom: mypy finds what no longer fits the library.
	@mypy --explicit-package-bases --allow-untyped-defs --allow-untyped-calls tests/fleet tests/foreign tests/torch benchmarks
	@echo "== import-linter" && lint-imports
	@echo "== code lines" && $(PY) docs/house.py --check
	@mkdir -p $(COLLECTION) && ln -sfn $(CURDIR) $(COLLECTION)/core
	@echo "== ansible-lint" && ANSIBLE_COLLECTIONS_PATH=$(CURDIR)/.ansible/collections ansible-lint --offline roles playbooks
	@echo "== yamllint" && yamllint --strict .
	@echo "== zizmor" && zizmor --offline --quiet .github action.yml

lab: test-packages ## a lab of six real SSH nodes; LAB=foreign: nodes with other CPUs, x86-64 and Arm
	@echo "== lab $(LAB)"
	@$(PY) -m tests.lab up --name $(LAB)

lab-down: setup ## take down every lab of this checkout
	@$(PY) -m tests.lab down --all

bench: test-packages ## the figures of docs/benchmarks.md, beside what users would pick instead: an hour or two
	@.ci/packages clustershell openssh-server
	@[ -x $(LIBTORRENT)/bin/python ] || .venv/bin/uv venv --quiet --python $(PY) $(LIBTORRENT)
	@.venv/bin/uv pip install --quiet --python $(LIBTORRENT)/bin/python libtorrent==2.1.1
	@echo "== benchmark: probing 50 SSH nodes; adds to docs/evidence/probe.json"
	@$(PY) -m benchmarks.probe
	@echo "== benchmark: building a small wheel and serving it on an SSH node"
	@$(PY) -m benchmarks.build
	@echo "== benchmark: installing a small wheel on SSH nodes"
	@$(PY) -m benchmarks.install --nodes 1 6 12
	@$(PY) -m benchmarks.install --nodes 50 --rounds 1
	@echo "== benchmark: installing a wheel of 190 MB on two SSH nodes"
	@$(PY) -m benchmarks.install --nodes 2 --megabytes 190
	@echo "== benchmark: installing on this machine"
	@$(PY) -m benchmarks.install --here
	@echo "== benchmark: upgrading one of two packages"
	@$(PY) -m pytest -q -s tests/fleet/test_kept_wheels.py
	@echo "== benchmark: a large file to many nodes on slow links"
	@$(PY) -m benchmarks.distribution --python $(LIBTORRENT)/bin/python
	@echo "== benchmark: planning for many nodes"
	@$(PY) -m benchmarks.plan
	@echo "== benchmark: simulated schedules"
	@$(PY) -m tests.simulation 0 2000
	@echo "== benchmark: checking 30 wheels"
	@$(PY) -m benchmarks.check

data: setup ## what source files that you have downloaded know, and our tables do not: FILES="pci.ids intel-family.h"
	@$(PY) -m benchmarks.tables $(FILES)

docs: setup ## the generated reference, schemas and changelog, and the site in site/
	@echo "== docs/reference/, fleetbuild/models/schemas/, CHANGELOG.md"
	@$(PY) docs/generate.py && $(PY) docs/changelog.py
	@echo "== what the commands on the pages print (docs/transcripts/)"
	@$(PY) docs/transcripts.py --long && $(PY) docs/picture.py
	@echo "== site/"
	@# With --quiet, mkdocs counts no warnings, so that --strict lets them pass.
	@mkdir -p .cache
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict > .cache/mkdocs.log 2>&1 || { cat .cache/mkdocs.log; exit 1; }

house: setup ## code lines, modules and imports of each room; SINCE=COMMIT: beside the figures of a commit
	@$(PY) docs/house.py $(SINCE)

release-notes: setup ## CHANGELOG.md for a release: make release-notes VERSION=0.2.0
	@[ -n "$(VERSION)" ] || { echo "Name the version: make release-notes VERSION=0.2.0" >&2; exit 2; }
	@$(PY) docs/changelog.py --release $(VERSION)

packages: setup # the wheel, the sdist and the collection, and a bill of what they need
	@echo "== dist/"
	@rm -rf dist && mkdir dist
	@.venv/bin/uv build --quiet --no-config --out-dir dist .
	@rm -f dist/.gitignore
	@ansible-galaxy collection build --force --output-path dist >/dev/null
	@.ci/lock

image: packages ## a controller in an image, by podman: IMAGE=registry.example.com/fleetbuild:1, BASE=a Python image
	@command -v $(firstword $(PODMAN)) >/dev/null || { echo "podman is missing. Fix: install it, or name another program: PODMAN=docker" >&2; exit 1; }
	$(PODMAN) build $(if $(BASE),--build-arg BASE=$(BASE)) $(IMAGE_ARGS) --tag $(IMAGE) --file Containerfile .

dist: image ## for a release, in dist/: wheel, sdist, collection, that image, and their bills of materials
	@$(PY) -m pip install --quiet --disable-pip-version-check --group dist
	@PODMAN="$(PODMAN)" .ci/save-image $(IMAGE)
	@ls dist

clean: ## remove what these targets made: labs, .venv, dist, caches
	@echo "== clean"
	@[ ! -x $(PY) ] || [ ! -d .lab ] || $(PY) -m tests.lab down --all
	@rm -rf .venv .lab .cache dist build site .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .ansible
