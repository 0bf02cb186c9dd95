# Set-up needs python3 (3.11 or newer), make and a package index; everything else comes from the index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation
LOCKS := requirements.lock requirements-build.lock requirements-java.lock
PYTEST_ARGS ?=
MINUTES ?= 10
SCALE ?= 1
STORE ?=
# Test files run side by side, each whole in one process: much of the time is spent waiting, so there is one more than cores.
# tests/conftest.py says in which order, so that no long one is left for the end.
WORKERS ?= 3
# Each process collects all tests: half of that is to compile them, unless it finds them compiled.
export PYTHONDONTWRITEBYTECODE :=
BESIDE := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PG15_BIN ?= $(patsubst %/initdb,%,$(firstword $(wildcard /usr/lib/postgresql/15/bin/initdb /usr/pgsql-15/bin/initdb /opt/homebrew/opt/postgresql@15/bin/initdb)))

# Other people's programs that read or serve the lake, for `make interop`; Maven knows where from.
JARS := .cache/jars
INTEROP := org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \
           org.postgresql:postgresql:42.7.14 \
           org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner \
           org.flywaydb:flyway-core:11.8.2 \
           org.flywaydb:flyway-database-postgresql:11.8.2 \
           com.fasterxml.jackson.core:jackson-annotations:2.15.2 \
           com.fasterxml.jackson.core:jackson-core:2.15.2 \
           com.fasterxml.jackson.core:jackson-databind:2.15.2

.PHONY: install demo test test-all test-lowest test-pg15 interop interop-tests jars soak bench bench-smoke check format lint types contracts lock clean

install: $(STAMP)

# Nothing is installed whose hash is not in a lock, nor what a package asks for to be built: setuptools comes first, and
# builds the others. Spark runs on Java 17 or newer. Where none is found, one is installed next to the package.
$(STAMP): pyproject.toml $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is older than 3.11" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --requirement requirements-build.lock
	$(PIP) --require-hashes --requirement requirements.lock
	java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])' || $(PIP) --require-hashes --requirement requirements-java.lock
	$(PIP) --no-index --editable .
	@$(BIN)/python -m pip check >/dev/null || { $(BIN)/python -m pip check; echo "error: pyproject.toml and requirements.lock differ: make lock" >&2; exit 1; }
	@touch $@

demo: install
	$(BIN)/frostline demo

# What to run while working: all but the tests marked slow, which kill processes, start servers of their own or go on for long.
# Of a file of such tests, those marked quick.
test: install
	$(BIN)/pytest $(BESIDE) -m "not slow or quick" $(PYTEST_ARGS)

test-all: install
	$(BIN)/pytest $(BESIDE) $(PYTEST_ARGS)

test-pg15: install
	@test -n "$(PG15_BIN)" || { echo "error: no initdb of PostgreSQL 15 found; say make test-pg15 PG15_BIN=DIR" >&2; exit 1; }
	$(BIN)/pytest $(BESIDE) --pg-bin $(PG15_BIN) tests/integration tests/crash tests/clients $(PYTEST_ARGS)

# The lake as the official Iceberg runtime for Spark reads it, commits to another REST catalog, and tables through JDBC.
# `make check` has them where the jars were fetched.
interop: jars interop-tests

interop-tests: install
	FROSTLINE_TEST_JARS=$(CURDIR)/$(JARS) $(BIN)/pytest tests/interop $(PYTEST_ARGS)
	FROSTLINE_TEST_JARS=$(CURDIR)/$(JARS) $(BIN)/pytest tests/clients/test_jdbc.py tests/clients/test_flyway.py $(PYTEST_ARGS)

jars: $(JARS)/.complete

$(JARS)/.complete: Makefile
	@command -v mvn >/dev/null || { echo "error: no mvn found, which fetches the jars" >&2; exit 1; }
	rm -rf $(JARS)
	for jar in $(INTEROP); do \
	  mvn --batch-mode --quiet dependency:copy -Dartifact=$$jar -DoutputDirectory=$(CURDIR)/$(JARS) || exit 1; \
	done
	@touch $@

# Random lives of a table, compared with a plain one all the time: make soak MINUTES=60
soak: install
	FROSTLINE_TEST_SOAK_MINUTES=$(MINUTES) $(BIN)/pytest tests/property/test_lifecycle.py -k as_long_as_asked -o faulthandler_timeout=0 $(PYTEST_ARGS)

# Every question of benchmarks/cases, and the page of the answers: make bench SCALE=4. Some 100 minutes on two cores, 28 of them
# for TPC-H at scale factor 1; `python -m benchmarks.run tpch fold` asks some of them.
bench: install jars
	$(BIN)/python -m benchmarks.run --scale $(SCALE) --json docs/reference/benchmarks.json --page docs/reference/benchmarks.md

# A few small ones. Fails only when something is less than half as good as what is stored: make bench-smoke STORE=--store
bench-smoke: install
	$(BIN)/python -m benchmarks.run --smoke benchmarks/smoke.json $(STORE)

# Tests of everything; what other programs say of it, where `make jars` was run; and, with nothing beside them, a few benchmarks.
check: lint types contracts test-all $(if $(wildcard $(JARS)/.complete),interop-tests) bench-smoke

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

# These two need uv. The locks are for every platform and Python at once; what they name already stays: make lock UPGRADE=--upgrade
UPGRADE ?=
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
           --no-emit-index-url --no-emit-find-links --quiet $(UPGRADE)
lock:
	$(COMPILE) --extra dev --output-file requirements.lock pyproject.toml
	sed -n 's/^requires = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(COMPILE) --output-file requirements-build.lock -
	sed -n 's/^java = \["\(.*\)"\]$$/\1/p' pyproject.toml | $(COMPILE) --output-file requirements-java.lock -
	for file in $(LOCKS); do \
	  { echo '# What is installed, with the hashes of its files. Written by `make lock`; do not edit.'; cat $$file; } > $$file.new && mv $$file.new $$file; \
	done

# A few tests with the lowest version of everything that pyproject.toml allows.
LOWEST := .cache/lowest
test-lowest:
	uv venv --quiet --clear --python 3.11 $(LOWEST)
	uv pip compile --quiet --resolution lowest-direct --python-version 3.11 --extra dev --output-file $(LOWEST)/requirements.txt pyproject.toml
	VIRTUAL_ENV=$(CURDIR)/$(LOWEST) uv pip install --quiet --requirement $(LOWEST)/requirements.txt --editable .
	$(LOWEST)/bin/pytest -p no:cacheprovider $(or $(PYTEST_ARGS),tests/unit tests/integration/test_archive.py tests/integration/test_fold.py \
	  tests/integration/test_spark_read.py tests/integration/test_spark_write.py tests/integration/test_s3.py)

clean:
	rm -rf $(VENV) build dist demo src/*.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
