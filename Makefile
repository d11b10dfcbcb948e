# Needs Python 3.11 or newer with its venv module, and make. Everything else is installed into .venv.
#
# ARGS is passed on: make demo ARGS="--orders 200 --exit", make test ARGS="tests/unit -x".

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules

ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
endif

# The environment's own name for itself, so that it works wherever the checkout is and however its path is written.
RUN := .venv/bin/python
ARGS ?=
export CHECKOUT := $(CURDIR)

EXTRAS_demo := service,flower,embedded,sink
EXTRAS_dev := dev

# An editable install points at one checkout: in a copy or after a move it is made again.
ifneq ($(shell cat .venv/.checkout 2>/dev/null),$(CURDIR))
$(shell rm -f .venv/.installed-*)
endif

.PHONY: help demo test lint format clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    watch mail travel the whole way; Ctrl-C ends it   ARGS="--orders 200 --exit"'
	@echo 'make test    every test, with a private PostgreSQL and Redis   ARGS="tests/unit -x"'
	@echo 'make lint    ruff, mypy and the import contracts'
	@echo 'make format  what ruff can mend by itself'
	@echo 'make clean   remove .venv, .state and the caches'

demo: .venv/.installed-demo
	@exec $(RUN) -m examples.demo $(ARGS)

# Two at a time: each has servers of its own, and most tests wait for something.
test: .venv/.installed-dev
	@exec $(RUN) -m pytest --numprocesses=2 --dist=worksteal $(ARGS)

lint: .venv/.installed-dev
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@$(RUN) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()' --no-logo

format: .venv/.installed-dev
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .

clean:
	rm -rf .venv .state .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# .installing is there while pip works: an install that was cut off starts from an empty environment.
.venv/.installed-%: pyproject.toml
	@test -n "$(PYTHON)" || { echo 'No Python 3.11 or newer was found. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; }
	@if [ -e .venv/.installing ] || ! $(RUN) -c 'import pip' 2>/dev/null; then \
		echo 'Making .venv with $(PYTHON)' >&2; \
		$(PYTHON) -m venv --clear .venv >&2 || { \
			echo 'The venv module does not work. On Debian and Ubuntu: apt-get install python3-venv' >&2; rm -rf .venv; exit 1; }; \
	fi
	@touch .venv/.installing
	@echo 'Installing into .venv (a minute or two the first time)' >&2
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS_$*)]' >&2
	@printf '%s' "$$CHECKOUT" > .venv/.checkout
	@rm -f .venv/.installing
	@touch $@
