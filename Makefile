# Every target works on a fresh machine: the environment is made on first use and renewed when its recipe changes.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles a module when it is first imported; most of those that come with the packages never are.
INSTALL := $(PIP) install --quiet --no-compile
WORKERS ?= 2
OUT ?= graphlog-quickstart

# Real data laid beside the checkout is used without asking; a value already set wins.
ifndef GRAPHLOG_MIRROR
ifneq ($(wildcard ../shared/data),)
export GRAPHLOG_MIRROR := $(abspath ../shared/data)
endif
endif

# Two workers on two cores: more threads than cores make every step several times slower. Without
# bytecode on disk each of the processes that tests start would compile the package anew.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest
# Each worker starts with one half of the files in order, so that what the tests of a file share is made once.
SPREAD := -n $(WORKERS) --dist worksteal

.PHONY: help install quickstart test test-slow test-processors notebook image doctest check format lint types imports spelling security audit docs fix clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

# torch goes first and alone, at its pinned version: a range would fetch the newest build with its CUDA libraries.
$(VENV)/base.stamp: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) "$$(grep -E '^torch==' constraints.txt)"
	touch $@

$(VENV)/core.stamp: $(VENV)/base.stamp pyproject.toml
	$(INSTALL) -c constraints.txt -e '.[plot,parquet,zstd]'
	touch $@

$(VENV)/dev.stamp: $(VENV)/core.stamp
	$(INSTALL) -c constraints.txt -e '.[plot,parquet,zstd,dev,docs]'
	touch $@

install: $(VENV)/dev.stamp  ## create .venv with everything in it

quickstart: $(VENV)/core.stamp  ## install, then run the whole tour offline (at most 3 minutes)
	$(BIN)/graphlog quickstart -o $(OUT)

test: $(VENV)/dev.stamp  ## install, then run the tests
	$(PYTEST) $(SPREAD)

test-slow: $(VENV)/dev.stamp  ## the tests that take minutes
	$(PYTEST) $(SPREAD) -m slow

# oneDNN and PyTorch choose their kernels by the processor; a cap makes this machine behave like a smaller one.
test-processors: $(VENV)/dev.stamp  ## the tests as on AVX2, AVX-512 with bf16, and this processor (nightly)
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 $(PYTEST) $(SPREAD)
	ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 $(PYTEST) $(SPREAD)
	$(PYTEST) $(SPREAD)

notebook: $(VENV)/dev.stamp  ## run the notebook of examples/ in a folder of its own
	place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; cp examples/quickstart.ipynb "$$place"; \
	$(BIN)/jupyter-execute --timeout=600 "$$place/quickstart.ipynb"

image:  ## build the image and embed in it; without docker, do its steps in a new environment
	.ci/image

doctest: $(VENV)/dev.stamp  ## every example in a docstring
	$(PYTEST) --doctest-modules src/graphlog

format: $(VENV)/dev.stamp
	$(BIN)/ruff format --check

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check

types: $(VENV)/dev.stamp
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/dev.stamp
	$(BIN)/lint-imports

spelling: $(VENV)/dev.stamp
	$(BIN)/codespell src docs benchmarks examples README.md CHANGELOG.md CONTRIBUTING.md

security: $(VENV)/dev.stamp
	$(BIN)/bandit --quiet --recursive src/graphlog --configfile pyproject.toml

audit: $(VENV)/dev.stamp  ## look up known vulnerabilities of the pinned dependencies (needs the network)
	$(PIP) install --quiet pip-audit
	$(BIN)/pip-audit --no-deps --disable-pip --requirement constraints.txt

docs: $(VENV)/dev.stamp  ## build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

check: format lint spelling security imports types doctest docs test  ## everything a change must pass

fix: $(VENV)/dev.stamp  ## repair what can be repaired
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:  ## remove the environment and what was built
	rm -rf $(VENV) build dist docs/_build .pytest_cache .ruff_cache
