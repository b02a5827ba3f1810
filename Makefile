# Everything runs from .venv, which is made from requirements.lock by the first target that needs it.
# Needs GNU make and Python 3.11 or newer; `make PYTHON=/path/to/python` chooses another than the first one found.

ifndef PYTHON
PYTHON := $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo "$$python"; break; }; done)
endif

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/specwatch-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
PYTEST_ARGS ?=

.PHONY: help run test check static test-vllm bench docs lock wheel clean

help:
	@echo 'make run         the demo: two simulated routes, an incident that opens and resolves'
	@echo 'make test        every test that needs neither Docker, nor a database, nor a GPU'
	@echo 'make check       what CI runs: formatting, types, import contracts, prompts, tests, coverage'
	@echo 'make test-vllm   the tests against a real vLLM on the CPU (installs 2.6 GB into .venv-vllm)'
	@echo 'make bench       the benchmarks that have a bound'
	@echo 'make docs        write docs/cli.md and docs/configuration.md anew'
	@echo 'make lock        write requirements.lock anew from pyproject.toml'
	@echo 'make wheel       build dist/specwatch-*.whl'
	@echo 'make clean       remove everything that make made'

$(STAMP): requirements.lock pyproject.toml
	@test -n '$(PYTHON)' || { echo 'No Python 3.11 or newer with the venv module was found. On Debian and Ubuntu:' \
		'apt-get install python3 python3-venv. Or name one: make PYTHON=/path/to/python3.11'; exit 1; }
	@echo 'Installing into $(VENV) with $(PYTHON); this happens once and takes a minute or two'
	@'$(PYTHON)' -m venv $(VENV)
	@$(PIP) install --no-warn-script-location --no-deps --require-hashes --requirement requirements.lock
	@$(PIP) install --no-warn-script-location --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

run: $(STAMP)
	@$(BIN)/specwatch demo

test: $(STAMP)
	@$(PYTEST) $(PYTEST_ARGS)

static: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/specwatch prompts lint

check: static
	$(PYTEST) --cov --cov-report=term-missing:skip-covered --cov-fail-under=95 $(PYTEST_ARGS)

test-vllm: $(STAMP)
	$(BIN)/python tests/real/install.py
	$(PYTEST) tests/real -p no:randomly $(PYTEST_ARGS)

bench: $(STAMP)
	@for benchmark in benchmarks/*.py; do $(BIN)/python "$$benchmark" || exit 1; done

docs: $(STAMP)
	@$(BIN)/python -m monitor.cli.reference > docs/cli.md
	@$(BIN)/python -m monitor.config.reference > docs/configuration.md

lock: $(STAMP)
	@$(PIP) install uv
	$(BIN)/python -m uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-annotate \
		--quiet --output-file requirements.lock

wheel: $(STAMP)
	@$(BIN)/python -m hatchling build --target wheel

clean:
	rm -rf $(VENV) .venv-vllm .cache dist build .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
