# POSIX tools, Python 3.11+ and, for whatever runs Spark, Java 17+. `make help` lists the targets.
PYTHON ?=
VENV = .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Tests that run at a time.
WORKERS = $(shell sh scripts/test_workers.sh)

.PHONY: help setup demo test test-fast test-matrix test-docker lint bench clean java browser

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make .venv, with everything the other targets need

demo: java $(READY) ## exactly-once, shown in a minute
	@$(BIN)/epochal demo

test: java browser $(READY) ## every test but the long matrix: unit tests, then those with Spark and real kills
	$(BIN)/python -m pytest -n $(WORKERS) tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations=15 integration_tests

test-fast: $(READY) ## the unit tests that need neither Spark nor Java
	$(BIN)/python -m pytest tests -m "not spark and not matrix"

test-matrix: java $(READY) ## the long matrix: a kill at every failpoint, for every sink
	$(BIN)/python -m pytest tests integration_tests -m matrix

test-docker: java $(READY) ## the tests that start servers, in containers: needs a Docker engine, or dockerd and root
	$(BIN)/python -m scripts.docker_tests $(TESTS)

lint: $(READY) ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

bench: java $(READY) ## the benchmarks
	@$(BIN)/python -m benchmarks.files
	@$(BIN)/python -m benchmarks.rolling
	@$(BIN)/python -m benchmarks.delta
	@$(BIN)/python -m benchmarks.forks
	@$(BIN)/python -m benchmarks.state --updates 1000000
	@$(BIN)/python -m benchmarks.buckets --open 10000 --few 1000 --touch 500 --epochs 4
	@$(BIN)/python -m benchmarks.recovery --updates 200000 400000 --kinds RA --settings off relaxed
	@$(BIN)/python -m benchmarks.recovery_plan --settings 3 --rounds 1 --rows 200000
	@$(BIN)/python -m benchmarks.observing
	@$(BIN)/python -m benchmarks.standby
	@$(BIN)/python -m benchmarks.scale_model
	@$(BIN)/python -m benchmarks.scaling --parts sinks files epochs executors
	@$(BIN)/python -m benchmarks.cassandra

clean: ## remove .venv and everything that can be made again
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .grimp_cache .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Asked first: without Java, Spark's own error would come after minutes and be a page long.
java:
	@python=$$(sh scripts/find_python.sh "$(PYTHON)") && "$$python" scripts/check_java.py

# The tests of `epochal ui` run in chromium; without one they are skipped.
browser:
	@sh scripts/find_browser.sh

# Made again when the dependencies change. --quiet: pip would tell where it downloads from.
$(READY): pyproject.toml constraints.txt
	@python=$$(sh scripts/find_python.sh "$(PYTHON)") || exit 1; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "making $(VENV) with $$python"; \
		rm -rf $(VENV) && "$$python" -m venv $(VENV) || exit 1; \
	fi
	@echo "installing into $(VENV) (the first time takes some minutes: Spark is 400 MB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)
