# Everything runs from .venv, which the first target that needs it sets up. Python 3.11 or later
# and make are all that must be there before.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/run.stamp
DEV_READY := $(VENV)/dev.stamp
KERNEL_READY := $(VENV)/kernel.stamp
KERNEL := $(wildcard protocol/records/kernel/*.p* protocol/records/kernel/*.h)

IMPORTED := bench cli client config pipeline protocol pyspark_horolog replication server storage testing

# Processes of the tests: twice the usual two processors, because tests mostly wait.
WORKERS ?= 4

INSTALL := requirements/install $(BIN)/python
LOCKED := $(INSTALL) --require-hashes

# PYTHON=... chooses the interpreter; else the first of these that is new enough and can make a
# virtual environment.
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python)

.PHONY: help setup run cluster test asan check wheel bench bench-kafka bench-cluster bench-spark bench-handshakes bench-memory soak mutants secure-clients elections ecosystem docs pictures lock clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(DEV_READY) $(KERNEL_READY) ## everything that tests, checks and benchmarks need, in .venv

run: $(RUN_READY) $(KERNEL_READY) ## start a broker, feed it real input, show it, leave it running
	@exec $(BIN)/horolog demo

cluster: $(RUN_READY) $(KERNEL_READY) ## etcd and three brokers on this machine, with real input: kill one and watch
	@$(BIN)/python -m horolog.cli.demo.brokers

test: $(DEV_READY) $(KERNEL_READY) ## the whole test suite
	@cd tests && ../$(BIN)/pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder \
	    --max-worker-restart 0

asan: $(DEV_READY) ## the kernel's tests under gcc's address and undefined behaviour sanitizers
	@.ci/asan $(abspath $(BIN)/python)

check: $(DEV_READY) ## lint, formatting, types, import directions, generated pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy -p horolog
	@cd tests && ../$(BIN)/pytest repo/test_imports.py config/test_generated_pages.py

wheel: $(DEV_READY) ## an archive of the sources and a wheel with the compiled kernel, in dist/; the wheel is tried in a virtual environment of its own
	@.ci/wheel $(abspath $(BIN)/python)

bench: $(DEV_READY) $(KERNEL_READY) ## measure; prints a table and writes build/bench.json
	@$(BIN)/python -m horolog.bench

bench-kafka: $(DEV_READY) $(KERNEL_READY) ## measure beside a real Apache Kafka (needs Java and Maven); writes build/bench-kafka.json
	@$(BIN)/python -m horolog.bench.beside_kafka

bench-cluster: $(DEV_READY) $(KERNEL_READY) ## measure a leader and its follower, and beside two brokers of Apache Kafka where there are Java and Maven; writes build/bench-cluster.json
	@$(BIN)/python -m horolog.bench.cluster

bench-spark: $(DEV_READY) $(KERNEL_READY) ## measure through Spark, beside Parquet files (needs Java); writes build/bench-spark.json
	@$(BIN)/python -m horolog.bench.spark

bench-handshakes: $(DEV_READY) $(KERNEL_READY) ## 10,000 TLS handshakes that stop half-way, at a broker; prints a table
	@$(BIN)/python -m horolog.bench.guard.half_open

bench-memory: $(DEV_READY) $(KERNEL_READY) ## pipelined requests that take much memory; prints a table, fails where a broker takes more than 400 MiB
	@$(BIN)/python -m horolog.bench.guard.pipelining

soak: $(DEV_READY) $(KERNEL_READY) ## the long random tests, kill rounds, and Spark on workers of its own
	@cd tests && ../$(BIN)/pytest -m soak --hypothesis-profile=soak --timeout=7200

mutants: $(DEV_READY) $(KERNEL_READY) ## break one rule at a time, and see that its test fails
	@cd tests && ../$(BIN)/python -m mutants.run

secure-clients: $(DEV_READY) $(KERNEL_READY) ## every client at a guarded broker, rules beside those of Apache Kafka (needs Java, Maven, Node.js, kcat)
	@cd tests && HOROLOG_REQUIRE=all ../$(BIN)/pytest -m "secure_clients or not soak" --durations=10 \
	    clients/guarded rights/test_apache_kafka.py rights/test_apache_kafka_broker.py \
	    guard/test_apache_tools.py guard/test_real_clients.py replicas/test_epochs.py \
	    secure_clients/test_spark.py

elections: $(DEV_READY) $(KERNEL_READY) ## brokers that etcd decides for, killed, stopped, cut off (needs etcd)
	@cd tests && HOROLOG_REQUIRE=all ../$(BIN)/pytest -m "elections or not soak" --durations=10 elections

ecosystem: $(DEV_READY) $(KERNEL_READY) ## programs of others, each from its registry: state in compacted topics, windows by name (needs Java, Maven, Node.js, Go, kcat)
	@cd tests && HOROLOG_REQUIRE=all ../$(BIN)/pytest -m "ecosystem or not soak" --durations=20 ecosystem

docs: $(DEV_READY) ## write the generated pages of docs/
	@mkdir -p build
	@for page in errors:cli.errors_reference protocol:protocol.api.reference cli:cli.reference; do \
	    $(BIN)/python -m horolog.$${page#*:} > build/page.md; \
	    mv build/page.md docs/$${page%%:*}.md; \
	done
	@for page in settings metrics security/rights; do \
	    $(BIN)/python -m horolog.server.reference $${page#*/} > build/page.md; \
	    mv build/page.md docs/$$page.md; \
	done
	@cd tests && ../$(BIN)/python -m clients.page > ../build/page.md
	@mv build/page.md docs/clients.md
	@cd tests && ../$(BIN)/python -m clients.guarded.page > ../build/page.md
	@mv build/page.md docs/security/clients.md

pictures: $(DEV_READY) $(KERNEL_READY) ## take the pictures of docs/ again; those of the page need chromium
	@$(BIN)/python docs/pictures/terminal.py
	@$(BIN)/python docs/pictures/page.py
	@$(BIN)/python docs/pictures/latency.py

lock: $(RUN_READY) ## choose dependency versions again: requirements/*.txt
	@.ci/lock $(BIN)/python

clean: ## remove everything that the targets above made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .pytest_cache
	rm -rf tests/.hypothesis tests/.pytest_cache
	rm -f protocol/records/kernel/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@for name in $(PYTHONS); do \
	    if "$$name" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	    then "$$name" -m venv $(VENV); exit; fi; \
	done; \
	echo 'No Python 3.11 or later with the modules venv and ensurepip was found among:' >&2; \
	echo '  $(PYTHONS)' >&2; \
	echo 'On Debian and Ubuntu: apt-get install python3 python3-venv' >&2; \
	echo 'Or name one: make PYTHON=/path/to/python3' >&2; \
	exit 1

# What is imported is compiled here, so that no command has to begin with that, not even where Python
# may write nothing (PYTHONDONTWRITEBYTECODE): it doubled the time of a start.
#
# The link lets tools see the repository root as the package `horolog`, whatever the folder is
# called, and new files without installing again; Spark looks for `pyspark_horolog` beside it. The
# path in the .pth file is relative to it. What pip adds for an editable install does the same by a
# module that every process would import at its start, for longer than Python itself takes to start.
# The kernel is compiled by a target of its own, beside what else is installed.
$(RUN_READY): requirements/build.txt requirements/run.txt pyproject.toml | $(BIN)/python
	@echo 'Installing what running needs into $(VENV) ...'
	@$(LOCKED) -r requirements/build.txt -r requirements/run.txt
	@mkdir -p $(VENV)/src && ln -sfn ../.. $(VENV)/src/horolog
	@ln -sfn ../../pyspark_horolog $(VENV)/src/pyspark_horolog
	@for packages in $(VENV)/lib/python3.*/site-packages; do \
	    echo ../../../src > "$$packages/horolog-src.pth"; \
	done
	@HOROLOG_KERNEL=reference $(INSTALL) --no-deps --no-build-isolation --editable .
	@rm -f $(VENV)/lib/python3.*/site-packages/__editable__.horolog-*.pth
	@$(BIN)/python -m compileall -q -l . && $(BIN)/python -m compileall -q $(IMPORTED)
	@touch $@

# Without a C compiler this says so, and the kernel's reference form is used.
$(KERNEL_READY): $(KERNEL) setup.py compiled.py $(RUN_READY)
	@if [ "$${HOROLOG_KERNEL-}" != reference ]; then \
	    $(BIN)/python setup.py --quiet build_ext --inplace; touch $@; \
	fi

# The pip that comes with Python can be years old, and takes twice as long. dev.txt holds every
# package that is needed, so pip resolves nothing. Packages are compiled in two processes, without
# the parts that no test imports; a file for another version of Python may fail to compile.
$(DEV_READY): $(RUN_READY) requirements/pip.txt requirements/dev.txt
	@echo 'Installing what tests and checks need into $(VENV) ...'
	@$(LOCKED) -r requirements/pip.txt
	@$(LOCKED) --no-deps --no-compile -r requirements/dev.txt
	@$(BIN)/python -m compileall -qq -j 2 \
	    -x '/tests?/|/(ml|mllib)/|/(elftools|mypyc|pygments)/' $(VENV)/lib/python3.*/site-packages || true
	@touch $@
