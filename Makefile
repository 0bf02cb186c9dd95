# Set-up needs python3 (3.11 or newer), make and a package index; everything else comes from the index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=
MINUTES ?= 10
SCALE ?= 1
STORE ?=
# Test files run side by side, each whole in one process: much of the time is spent waiting, so there is one more than cores.
WORKERS ?= 3
PG15_BIN ?= $(patsubst %/initdb,%,$(firstword $(wildcard /usr/lib/postgresql/15/bin/initdb /usr/pgsql-15/bin/initdb /opt/homebrew/opt/postgresql@15/bin/initdb)))

# Other people's programs that read or serve the lake, for `make interop`; Maven knows where from.
JARS := .cache/jars
INTEROP := org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \
           org.postgresql:postgresql:42.7.14 \
           org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner

.PHONY: install demo test test-pg15 interop jars soak bench bench-smoke check format lint types contracts lock clean

install: $(STAMP)

# Spark runs on Java 17 or newer. Where none is found, one is installed next to the package.
$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	extras=dev; \
	java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || extras=dev,java; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable ".[$$extras]"
	@touch $@

demo: install
	$(BIN)/frostline demo

test: install
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

test-pg15: install
	@test -n "$(PG15_BIN)" || { echo "error: no initdb of PostgreSQL 15 found; say make test-pg15 PG15_BIN=DIR" >&2; exit 1; }
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --pg-bin $(PG15_BIN) tests/integration $(PYTEST_ARGS)

# The lake as the official Iceberg runtime for Spark reads it, and commits to another REST catalog. Not part of `make check`.
interop: install jars
	FROSTLINE_TEST_JARS=$(CURDIR)/$(JARS) $(BIN)/pytest tests/interop $(PYTEST_ARGS)

jars: $(JARS)/.complete

$(JARS)/.complete: Makefile
	@command -v mvn >/dev/null || { echo "error: no mvn found, which fetches the jars" >&2; exit 1; }
	rm -rf $(JARS)
	for one in $(INTEROP); do \
	  mvn --batch-mode --quiet dependency:copy -Dartifact=$$one -DoutputDirectory=$(CURDIR)/$(JARS) || exit 1; \
	done
	@touch $@

# Random lives of a table, compared with a plain one all the time: make soak MINUTES=60
soak: install
	FROSTLINE_TEST_SOAK_MINUTES=$(MINUTES) $(BIN)/pytest tests/property/test_lifecycle.py -k as_long_as_asked $(PYTEST_ARGS)

# Every question of benchmarks/cases, and the page of the answers: make bench SCALE=4. Less than 30 minutes on two cores.
bench: install jars
	$(BIN)/python -m benchmarks.run --scale $(SCALE) --json docs/reference/benchmarks.json --page docs/reference/benchmarks.md

# A few small ones. Fails only when something is less than half as good as what is stored: make bench-smoke STORE=--store
bench-smoke: install
	$(BIN)/python -m benchmarks.run --smoke benchmarks/smoke.json $(STORE)

check: lint types contracts test

format: install
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

lint: install
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: install
	$(BIN)/basedpyright --project pyproject.toml

contracts: install
	$(BIN)/lint-imports

# The only target that needs uv: it resolves for every platform and Python at once.
lock:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --output-file requirements.lock
	printf '%s\n' '# Every version that is installed, written by `make lock`. Do not edit.' | cat - requirements.lock > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:
	rm -rf $(VENV) build dist demo src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
