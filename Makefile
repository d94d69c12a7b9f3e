# Each target sets up on first use: setup.sh makes .venv/.stamp, and again when a lock or pyproject.toml changes.
#   make run TARGETS=ch1              make run TARGETS="ch1 ch07:transpose" ARGS="--reproducible"
ARGS ?=
STAMP := .venv/.stamp
BIN := .venv/bin

.PHONY: help setup run verify test passed lint types check check-all format
help:
	@echo "make run TARGETS=ch1   measure a chapter, by default the first (ARGS=... passes options on)"
	@echo "make verify            check every pair that can be checked here, without timing (TARGETS, ARGS as above)"
	@echo "make test              run the tests"
	@echo "make passed            the same, and then note each pair's files: while they stay so, tests pass over the pair"
	@echo "make check             lint, types and tests, as CI does"
	@echo "make check-all         the same, every pair proven and every kernel compiled for every kind of GPU, as CI does each night"
	@echo "make format            rewrite the sources in the common format"

$(STAMP): requirements.lock requirements-cuda.lock pyproject.toml setup.sh
	@./setup.sh

setup: $(STAMP)
	@:

run: $(STAMP)
	@$(BIN)/benchmark_cli run $(addprefix --targets ,$(or $(TARGETS),$(if $(findstring --resume,$(ARGS)),,ch1))) $(ARGS)

verify: $(STAMP)
	@$(BIN)/benchmark_cli verify $(addprefix --targets ,$(or $(TARGETS),all)) $(ARGS)

test: $(STAMP)
	@$(BIN)/pytest -n auto --dist loadfile $(ARGS)

passed: test
	@$(BIN)/python tests/corpus/changed.py

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .

types: $(STAMP)
	@$(BIN)/mypy --no-error-summary

check: lint types test

check-all: export PROVE = all
check-all: export BENCHMARK_KILLS = 10
check-all: check
	@$(BIN)/benchmark_cli build all

format: $(STAMP)
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format --quiet .
