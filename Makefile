# make demo    a real model, decoded plainly, strictly speculated and within a regret budget
# make test    the default tests and the end-to-end test with the demo model
# make check   lint, format, types, layers, sizes
# make bench   what the verifier and the loop cost
#
# Each works in a fresh clone: the first one makes $(VENV) and installs into it (see scripts/setup
# for PYTHON, TORCH_VERSION and TORCH_CPU_INDEX). To use an environment of your own, with its torch:
# make VENV=/path/to/environment test

VENV ?= .venv
PYTHON ?=
TORCH_VERSION ?= 2.13.0
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := $(VENV)/bin
STAMP := $(VENV)/.lenity-setup

# torch's OpenMP threads spin while they wait: beside one other busy process, two threads become ten
# times slower. Passive waiting cures it, and has to be set before torch is imported.
export OMP_WAIT_POLICY := PASSIVE
# tokenizers warns and falls back to one thread anyway once a process has forked.
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench coverage format clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml scripts/setup
	@VENV='$(VENV)' PYTHON='$(PYTHON)' TORCH_VERSION='$(TORCH_VERSION)' \
		TORCH_CPU_INDEX='$(TORCH_CPU_INDEX)' scripts/setup
	@touch '$@'

demo: $(STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/lenity demo --study runs/demo-$(shell date +%Y%m%d-%H%M%S)

# Two processes of one thread each; WORKERS=0 runs all in one.
WORKERS ?= 2

test: $(STAMP)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_sizes.py src

bench: $(STAMP)
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.verify_overhead
	HF_HUB_OFFLINE=1 $(BIN)/python -m benchmarks.loop_overhead

# Every branch where a wrong one would go unnoticed, nine lines in ten elsewhere.
coverage: $(STAMP)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest --cov --cov-report=
	$(BIN)/coverage report --fail-under=90
	$(BIN)/coverage report --fail-under=100 \
		--include='*/policies/*,*/skipping/*,*/lenity/sampling.py,*/lenity/scoring.py,*/lenity/ledger.py,*/lenity/trees.py'

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache .coverage build dist
