# Two commands matter: `make seed` and `make test`. Both work on a fresh machine with git, make and Python 3.11 to 3.13.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help seed test lint clean

help:
	@echo "make seed   environment in $(VENV), install, build and verify the archive (runs/archive.sqlite)"
	@echo "make test   the whole test suite, lint and types included"
	@echo "make lint   ruff and mypy alone"

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "pallas_evo needs Python 3.11 to 3.13, this is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2])'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[ptx,report,export,test]'
	touch $@

seed: $(STAMP)
	$(BIN)/python -m pallas_evo.seed

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup

clean:
	rm -rf $(VENV) build dist
