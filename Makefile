# `make demo` and `make test` work in a fresh clone: the first one that runs sets up .venv.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
# `make EXTRAS=dev,openvino,tensorrt-rtx install` brings serving engines along; tests of an engine that is missing are skipped.
EXTRAS ?= dev
DEMO  := out/text-sentiment
QUICK := not slow and not network and not benchmark

# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python ...` chooses another.
IS_NEW := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do $$p -c '$(IS_NEW)' 2>/dev/null && echo $$p && break; done)

.PHONY: help install demo test test-fast lint format bench clean

help: ## say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## set up .venv with the pinned versions

$(STAMP): pyproject.toml constraints.txt
	@'$(PYTHON)' -c '$(IS_NEW)' 2>/dev/null \
		|| { echo "make: Python 3.11 or newer is needed, and none was found; name one with: make PYTHON=/path/to/python" >&2; exit 2; }
	@echo "setting up $(VENV): once, a few minutes"
	'$(PYTHON)' -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

# A verdict of fail (1) or inconclusive (3) is what the demo found, not an error of the demo, as long as there is a report that says so.
demo: $(STAMP) ## run the shipped recipe on a real model: verdict, candidates, report
	@rm -f $(DEMO)/report.json
	@code=0; $(BIN)/quant run recipes/text-sentiment.yaml --output $(DEMO) || code=$$?; \
	case $$code in \
		0) ;; \
		1|3) test -f $(DEMO)/report.json || exit 2; echo "(exit code $$code of quant run says so to a CI job)" ;; \
		*) exit $$code ;; \
	esac

test: $(STAMP) ## all tests, with real models and data (they are fetched once, into the user's cache)
	$(BIN)/pytest -n 2 --dist loadfile -m 'not benchmark'

test-fast: $(STAMP) ## what needs neither network nor real models
	$(BIN)/pytest -n 2 --dist loadfile -m '$(QUICK)'

lint: $(STAMP) ## style, formatting, types, and which room may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code as the formatter wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## print measurements
	$(BIN)/pytest -m benchmark -s

clean: ## remove .venv, outputs and tool caches (not the user's cache of models and results)
	rm -rf $(VENV) out runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
