# The same few commands for a person and for CI. `make` alone lists them.
# Needs Python 3.11 or newer as python3 (or PYTHON=...); everything else goes into .venv, from requirements.lock.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# Tests run side by side, one worker more than there are cores (tests/conftest.py); a group of tests that shares what is dear to start stays in one worker.
SIDE_BY_SIDE := -n auto --dist loadgroup
# The tests start hundreds of Pythons: each finds what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo quick test pure torture compat bench reference site configuration lint format types layers check lock install deb clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(INSTALLED) ## make .venv and install the locked packages

# What is imported is compiled then: to compile all of PySpark and its kind beforehand takes most of a minute.
# Eruca is installed again when the broker's native step changes, which that compiles.
$(INSTALLED): requirements.lock pyproject.toml hatch_build.py $(wildcard broker/eruca/broker/store/c/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Eruca needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "[1/3] virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "python3 cannot make virtual environments here: install python3-venv"; exit 1; }
	@echo "[2/3] packages of requirements.lock (PySpark is large: a few minutes the first time)"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-compile --require-hashes \
		--requirement requirements.lock
	@echo "[3/3] eruca itself, editable"
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c 'from eruca.broker.store import native; native.on or \
		print("The broker will work without its native step, more slowly: that needs gcc and the headers of Python.")'
	@touch $@

demo: venv ## real processes, real text, a rewind that an online consumer feels
	@$(BIN)/eruca demo

# What a change needs most, of the parts that nearly every change touches.
QUICK := tests/protocol tests/remoting tests/nameserver tests/broker tests/client

quick: venv ## the tests that answer in a minute: protocol, remoting, servers and client, without marked ones
	@$(PYTEST) -n auto --dist worksteal -q -m "not (slow or processes or spark or compat)" $(QUICK)

test: venv ## every test but those that need Apache RocketMQ, side by side
	@$(PYTEST) $(SIDE_BY_SIDE) tests --ignore=tests/compat

# Etcd's port and the rules of failover know no store.
pure: venv ## the broker's tests without its native step, as on a machine without a C compiler
	@ERUCA_PURE=1 $(PYTEST) -n auto --dist worksteal -q tests/broker \
		--ignore=tests/broker/coordination --ignore=tests/broker/failover

TIMES := 10

torture: venv ## the durability programme, an hour or two (docs/durability.md; TIMES=5: half; ERUCA_SEED=...: another run)
	@ERUCA_TORTURE=1 ERUCA_TIMES=$(TIMES) $(PYTEST) tests/faults tests/spark_connector/write/test_sink_killed.py \
		tests/spark_connector/pipelines/test_ended.py \
		tests/spark_connector/read/test_by_content.py tests/client/test_outbox.py tests/client/test_deduplication.py \
		tests/client/network/test_new_topics.py --timeout 7200 -v -s

compat: venv ## Apache RocketMQ's own clients, tools and servers as judges (needs Java 17 and Maven)
	@$(PYTEST) -n auto --dist loadfile tests/compat

bench: venv ## Apache RocketMQ and Eruca side by side, and Kafka in Spark; writes docs/benchmarks.md (BENCH=--short: 15 minutes)
	@$(BIN)/python -m tests.bench.run $(BENCH)
	@$(BIN)/python -m tests.bench.mqadmin $(if $(BENCH),3)
	@$(BIN)/python -m tests.bench.console $(if $(BENCH),3)
	@$(BIN)/python -m tests.bench.spark $(BENCH)

REFERENCE := eruca.client eruca.client.sync eruca.client.assign eruca.client.errors eruca.client.hooks \
	eruca.client.metrics eruca.client.selectors eruca.client.serializers eruca.client.telemetry \
	eruca.spark_connector.source eruca.spark_connector.lag eruca.spark_connector.deduplication eruca.spark_connector.errors \
	eruca.faststream \
	eruca.spark_connector.pipelines eruca.standalone.cluster eruca.standalone.background eruca.standalone.pytest_plugin

reference: venv ## the API reference from the docstrings, as pages in out/reference
	@PYTHONWARNINGS=ignore $(BIN)/pdoc --docformat google --no-show-source --output-directory out/reference $(REFERENCE)
	@echo "open out/reference/index.html"

site: reference ## the documentation site from docs/ and the API reference, link-checked, in out/site
	@.ci/site

configuration: venv ## docs/configuration.md from the fields of the settings, tables of docs/mqadmin.md from the commands
	@$(BIN)/python -m tests.house.configuration
	@$(BIN)/python -m tests.house.mqadmin_page

lint: venv ## ruff: style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: venv ## let ruff format everything
	@$(BIN)/ruff format .

types: venv ## mypy, strict
	@$(BIN)/mypy

layers: venv ## import-linter: dependencies point down
	@$(BIN)/lint-imports

check: lint types layers test ## lint, types, layers, test

COMPILE := out/lock/bin/uv pip compile pyproject.toml --universal --upgrade --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" --quiet

COMPILE_TOOLS := out/lock/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --custom-compile-command "make lock" --quiet

lock: ## write the lock files again (newest versions that pyproject.toml allows)
	@$(PYTHON) -m venv out/lock && out/lock/bin/python -m pip install --quiet uv
	@$(COMPILE) --all-extras --output-file requirements.lock
	@$(COMPILE) --extra broker --extra acl --extra prometheus --constraints requirements.lock --output-file deploy/docker/requirements.lock
	@$(COMPILE) --extra spark --constraints requirements.lock --output-file deploy/docker/spark.lock
	@$(COMPILE_TOOLS) .ci/audit.in --upgrade --output-file .ci/audit.lock
	@$(COMPILE_TOOLS) .ci/site.in --upgrade --output-file .ci/site.lock
	@$(COMPILE_TOOLS) .ci/wheels.in --upgrade --constraints requirements.lock --output-file .ci/wheels.lock
	@$(COMPILE_TOOLS) pyproject.toml --resolution lowest-direct --output-file .ci/lowest.lock
	@$(COMPILE_TOOLS) deploy/build.in --constraints requirements.lock --output-file deploy/build.lock
	@echo "requirements.lock and those in deploy and .ci are new: run make test"

install: ## the daemons, mqadmin and their units: DESTDIR (default: this machine), PREFIX (default /opt/eruca)
	@DESTDIR="$(DESTDIR)" PREFIX="$(or $(PREFIX),/opt/eruca)" PYTHON="$(PYTHON)" deploy/install

deb: ## a .deb of the same, in out/
	@deploy/debian/build out

clean: ## remove .venv and everything that was made
	@rm -rf $(VENV) out .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +
