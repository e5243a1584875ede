# Every target does its own set-up: it needs Python 3.11 or newer, make and git, and nothing else.
# ARGS goes through to the program, as in `make test ARGS="-k ledger"`; PYTHON picks the interpreter.

.DEFAULT_GOAL := help
.PHONY: help serve test quick nightly check lint format types docs bench growth gallery weights cluster spaces lock packages release setup laws soak assurance images vocabulary
export PYTHON

VENV ?= .venv
export VENV
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
LOCK := constraints.txt constraints-embedded.txt
SETUP := @sh tools/setup.sh
# A process that has run out of tests takes over some of another's; tests/conftest.py says how many there are.
QUICK = tests/unit --ignore=tests/unit/engines --ignore=tests/unit/cli tests/architecture/test_laws.py
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal

help: ## what there is
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-9s %s\n", $$1, $$2 }'

serve: $(STAMP)-embedded ## start the server; prints its address, a key and a line to try
	@$(BIN)/sixfold serve $(ARGS)

test: $(STAMP)-test ## run the tests on every core: all but those of `make nightly`
	@$(PYTEST) -m "not nightly and not clock" --junitxml=.pytest_cache/suite.xml --skipped-to=.pytest_cache/skipped.txt $(ARGS)

quick: $(STAMP)-test ## run the fast unit tests and stop at the first failure: for the edit loop, within a minute
	@$(PYTEST) -q -x -m "not nightly and not clock and not slow and not browser and not postgres and not s3" $(QUICK) $(ARGS)

nightly: $(STAMP)-test ## run the slowest tests: whole programs, clusters, long stories
	@$(PYTEST) -m "nightly and not clock" --junitxml=.pytest_cache/nightly.xml $(ARGS)

check: lint types docs laws ## every law that a machine can check

lint: $(STAMP)-dev ## style, import rules, and types generated for clients
	@$(BIN)/ruff check $(ARGS)
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.client_types --check

format: $(STAMP)-dev ## put right what a machine can: imports, layout, old idioms
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

types: $(STAMP)-dev $(STAMP)-weights ## pyright: strict where it matters most; reads the types of torch and diffusers
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --warnings $(ARGS)

laws: $(STAMP)-dev # the laws that are tests; `make test` runs them too
	@$(BIN)/python -m pytest -q tests/architecture

vocabulary: $(STAMP)-dev # lower the numbers of names that break a law, in tests/architecture/vocabulary.toml
	@$(BIN)/python -m tests.architecture.vocabulary $(ARGS)

docs: $(STAMP)-dev ## build the documentation into docs/_build/html
	@$(BIN)/python -m sphinx -W -n -q --keep-going -b html docs docs/_build/html $(ARGS)
	@echo "docs/_build/html/index.html"

bench: $(STAMP)-test ## measure this machine: tables with ratios
	@$(BIN)/python -m bench $(ARGS)

growth: $(STAMP)-test ## fill databases with a million predictions and five million transfers, and time their pages
	@$(BIN)/python -m bench growth $(ARGS)

gallery: $(STAMP)-test ## remake the pictures of the docs and of the catalogue's cards with the product itself
	@$(BIN)/python tools/gallery.py $(ARGS)
	@PYTHONPATH=. $(BIN)/python tools/docs_images.py
	@PYTHONPATH=. $(BIN)/python tools/catalog_examples.py $(ARGS)
	@$(BIN)/python -m tools.page_pictures
	@$(BIN)/python -m tools.memory_pictures

weights: $(STAMP)-weights ## add torch and diffusers: models whose weights lie on this machine

cluster: $(STAMP)-ray ## add Ray: workers on several machines

spaces: $(STAMP)-test ## add servers of Gradio 4, 5 and 6, which the tests of spaces start (ARGS=6 for one)
	@$(BIN)/python tools/gradios.py $(ARGS)

lock: ## write the constraints files anew (ARGS=--upgrade takes newer releases)
	@python3 tools/lock.py $(ARGS)

soak: $(STAMP)-test ## let a small cluster work and suffer for a while (ARGS="--seconds 3600")
	@$(BIN)/python -m tools.soak $(ARGS)

assurance: $(STAMP)-test ## write what the tests behind every promise of safety and money find (ARGS="--from REPORT")
	@$(BIN)/python -m tools.assurance $(ARGS)

images: $(STAMP)-test ## build the image, the compose file's cluster and a space with podman, use and hurt them (root)
	@$(BIN)/python -m tools.container_smoke_test $(ARGS)

packages: $(STAMP)-dev ## a wheel and a source archive in dist/, installed in a clean environment and tried
	@$(BIN)/python -m tools.release

release: check test packages ## the same, once everything holds

setup: $(STAMP)-dev # everything that the targets above need, ahead of time

# One stamp per extra, inside the environment: no pip at all while nothing it read has changed.
$(STAMP)-embedded: pyproject.toml $(LOCK)
	$(SETUP) embedded
	@touch $@

$(STAMP)-test: pyproject.toml $(LOCK) constraints-test.txt
	$(SETUP) test
	@touch $@ $(STAMP)-embedded

$(STAMP)-dev: pyproject.toml $(LOCK) constraints-test.txt constraints-dev.txt
	$(SETUP) dev
	@touch $@ $(STAMP)-test $(STAMP)-embedded

$(STAMP)-weights: pyproject.toml $(LOCK)
	$(SETUP) weights
	@touch $@

$(STAMP)-ray: pyproject.toml $(LOCK)
	$(SETUP) ray
	@touch $@
