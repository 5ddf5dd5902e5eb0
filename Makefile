# Needs Python 3.11 or later and make. The first call of a target sets up .venv (that needs the package registry);
# after that everything works offline.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Stamps carry the checksum of pyproject.toml: an unchanged one means that nothing has to be installed.
SUM    := $(shell cksum < pyproject.toml | cut -d' ' -f1)
BASE   := $(VENV)/.polytag-base-$(SUM)
NN     := $(VENV)/.polytag-nn-$(SUM)
DEV    := $(VENV)/.polytag-dev-$(SUM)
SERVED := $(VENV)/.polytag-services-$(SUM)
SITE   := $(VENV)/.polytag-site-$(SUM)
TORCH  := $(shell sed -n 's/^ *"\(torch[^"]*\)",*$$/\1/p' pyproject.toml)
CODE   := src tests benchmarks deploy release
ARGS   ?=

.PHONY: help demo test test-services check fuzz faults mutants docs dist bench clean distclean
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

demo: $(NN)  ## train br, embed and bert on the shipped sample, print one table and three labelled documents
	$(BIN)/python -m polytag.cli.demo $(ARGS)

# A worker per core, each with one thread; at most four, because each holds torch. A worker that has nothing left takes tests
# from another one, which leaves most tests of a file, and what they share, in one process.
test: $(DEV)  ## run the tests; ARGS="tests/test_docs.py -x" runs some, ARGS="-n0 --pdb" stays in one process
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal $(ARGS)

# Programs are found, installed where that is possible, or reported; a test without its program is skipped, and -rs says why.
test-services: $(SERVED)  ## run the tests that need programs outside of Python, such as a browser
	@sh tests/services.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n0 -rs -m services $(ARGS)

check: $(DEV)  ## ruff, and mypy --strict on src and benchmarks
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy

fuzz: $(DEV)  ## forge artefacts of all models and try each; ARGS="br --most 0" tries all of one model
	$(BIN)/python tests/fuzz/runner.py $(ARGS)

faults: $(DEV)  ## fail every file operation of every verb in turn: a full disk, a broken one, a kill
	POLYTAG_FAULTS=all OMP_NUM_THREADS=1 $(BIN)/python -m pytest -s -n0 tests/test_faults.py $(ARGS)

mutants: $(DEV)  ## plant bugs in lines that changed since HEAD, list those that no test notices; ARGS="--sample 60" in all of src
	$(BIN)/python tests/mutants.py $(ARGS)

docs: $(SITE)  ## write the generated tables of docs/ again, and build the site: build/site/index.html
	$(BIN)/python tests/test_docs.py
	$(BIN)/python release/site_pages.py build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet -f build/mkdocs.yml
	@echo "build/site/index.html"

dist: $(SITE)  ## wheel, sdist, bills of materials and checksums in dist/; docs/releasing.md
	$(BIN)/python release/distribution.py $(ARGS)

bench: $(DEV)  ## compare with the peers; ARGS="--corpora reuters", see benchmarks/README.md
	$(BIN)/python benchmarks/linear.py $(ARGS)

clean:  ## remove caches and build leftovers, keep the environments
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the environments too
	rm -rf .venv .venvs

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is missing or older than 3.11; name another one: make PYTHON=python3.11" >&2; exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments; install its venv package" >&2; exit 1; }

$(BASE): | $(BIN)/python
	@echo "installing polytag into $(VENV)"
	@$(PIP) install -e .
	@$(BIN)/polytag warm
	@rm -f $(VENV)/.polytag-base-* && touch $@

# torch goes first and alone: resolved together with the rest, pip would take the large build for GPUs.
$(NN): | $(BASE)
	@echo "installing what neural models need into $(VENV)"
	@$(PIP) install "$(TORCH)"
	@$(PIP) install -e ".[nn]"
	@rm -f $(VENV)/.polytag-nn-* && touch $@

$(DEV): | $(NN)
	@echo "installing what tests and checks need into $(VENV)"
	@$(PIP) install -e ".[nn,export,tune,serve,dev]"
	@rm -f $(VENV)/.polytag-dev-* && touch $@

$(SITE): | $(DEV)
	@echo "installing what the site and releases need into $(VENV)"
	@$(PIP) install -e ".[nn,export,tune,serve,dev,docs,release]"
	@rm -f $(VENV)/.polytag-site-* && touch $@

$(SERVED): | $(DEV)
	@echo "installing what reports and tests of services need into $(VENV)"
	@$(PIP) install -e ".[nn,export,tune,serve,dev,report,cluster,spark,mlflow,docs,release,services]"
	@rm -f $(VENV)/.polytag-services-* && touch $@
