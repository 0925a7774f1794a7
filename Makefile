# Every target does its own set-up. Python 3.11 or later, git and make are enough; uv is used if it is there.

PYTHON ?= python3
# One more than there are cores, on two: many tests wait for real processes.
TESTFLAGS ?= -n 3

BIN := .venv/bin
READY := .venv/.ready
UV := $(shell command -v uv 2>/dev/null)

# uv chooses a suitable Python by itself, unless one was asked for.
UV_PYTHON_FLAG := $(if $(filter file,$(origin PYTHON)),,--python $(PYTHON))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test check bench format lock clean

help:
	@echo "make setup    create .venv with everything needed to work on Dovetail"
	@echo "make demo     watch Dovetail at work"
	@echo "make test     run the tests"
	@echo "make check    format, lint, types, import rules and tests: what CI runs"
	@echo "make bench    measure"
	@echo "make format   format the code and fix what ruff can fix"
	@echo "make lock     bring the lock files in line with pyproject.toml (needs uv)"
	@echo "make clean    remove .venv, caches and build output"

setup: $(READY)

# Both routes install the versions of uv.lock: requirements-dev.txt is generated from it. pip also steps in
# when uv fails, since uv.lock names its files by their full address and a package mirror may be all there is.
$(READY): pyproject.toml uv.lock requirements-dev.txt
	@if [ -n "$(UV)" ] && echo "Setting up .venv with uv" && \
		UV_PROJECT_ENVIRONMENT=.venv "$(UV)" sync --quiet --frozen $(UV_PYTHON_FLAG); \
	then :; \
	else \
		set -e; \
		echo "Setting up .venv with pip (a minute, the first time)"; \
		$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Dovetail needs Python 3.11 or later: make PYTHON=python3.11 ...")'; \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv; \
		$(BIN)/python -m pip install -qq --upgrade 'pip>=25.1'; \
		$(BIN)/python -m pip install -qq --require-hashes -r requirements-dev.txt; \
		$(BIN)/python -m pip install -qq --no-deps -e .; \
	fi
	@touch $@

demo: setup
	@$(BIN)/python -m examples.demo

test: setup
	@$(BIN)/python -m pytest $(TESTFLAGS)

# pyproject.toml makes warnings errors, and pytest-randomly shuffles.
check: setup
	@echo "== ruff format"
	@$(BIN)/ruff format --check .
	@echo "== ruff check"
	@$(BIN)/ruff check .
	@echo "== pyright"
	@$(BIN)/pyright
	@echo "== lint-imports"
	@$(BIN)/lint-imports --no-logo
	@echo "== pytest"
	@$(BIN)/python -m pytest $(TESTFLAGS)

bench: setup
	@$(BIN)/python -m bench

format: setup
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

# Only PyPI may be named in the lock, whatever index this machine prefers. LOCKFLAGS=--upgrade takes the newest.
lock:
	@[ -n "$(UV)" ] || { echo "make lock needs uv" >&2; exit 1; }
	@env -u UV_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
		"$(UV)" lock --quiet --no-config --default-index https://pypi.org/simple $(LOCKFLAGS)
	@"$(UV)" export --quiet --frozen --no-config --all-groups --no-emit-project --output-file requirements-dev.txt

clean:
	@rm -rf .venv .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
