# Everything a person or the CI runs; `make` alone lists the targets. Each makes what it needs of $(VENV) by itself.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
# Processes that share the tests, file by file, in the order in which tests/conftest.py puts them.
WORKERS := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# What each part of the environment holds, beside trackway itself.
demo_packages := --editable '.[alerts,profiling]' --group examples
test_packages := --editable '.[alerts,cli,frames,jax,profiling,s3,trackio,wandb]' --group tests
check_packages := --group check
browser_packages := --group browser
docs_packages := --editable '.[alerts,cli,jax,profiling,trackio,wandb]' --group docs
# The versions of the other trackers are those that the bounds were set for.
bench_packages := --editable '.[alerts,jax]' 'polars>=1.12' expr-tracker==0.4.1 trackio==0.43

# What the capture tests run on besides the newest JAX: older versions of it, and what it is going to turn on.
jax_versions := 0.8.3 0.9.2
jax_switches := JAX_REMAT3,JAX_CUSTOM_VJP3
capture_tests := tests/capture --ignore tests/capture/fuzz -m "not frameworks and not slow" $(WORKERS)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-more bench-jax check-jax docs clean lint test-server wheel
.PRECIOUS: $(VENV)/.ready-% $(VENV)/jax-%/.ready
.NOTPARALLEL: # the parts of one environment cannot be installed side by side

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.ready-demo ## train a small network on handwritten digits, tracked by three backends
	$(BIN)/python examples/train_digits.py

test: $(VENV)/.ready-test ## run the tests that need no server, browser or system package
	$(PYTEST) $(WORKERS) -m "not server and not site"

check: lint docs wheel test test-server check-jax ## everything: linters, types, documentation, the built wheel, all tests

bench: $(VENV)/bench/.ready ## measure what a run costs, beside the least possible and other trackers; prints one table
	$(VENV)/bench/bin/python benchmarks/run.py

bench-more: $(VENV)/.ready-test ## measure imports, values, members that fail, services that go away, replay; prints tables
	@missed=0; for script in imports values fan_out away replay; do \
		echo; echo "== $$script"; $(BIN)/python benchmarks/$$script.py || missed=1; \
	done; exit $$missed

bench-jax: $(VENV)/.ready-test ## measure what logging from compiled code costs; prints one table
	$(BIN)/python benchmarks/jit.py

check-jax: $(VENV)/.ready-test $(jax_versions:%=$(VENV)/jax-%/.ready) ## run the capture tests on other versions of JAX and with its coming autodiff
	$(BIN)/python tests/package/try_jax.py $(foreach version,$(jax_versions),jax-$(version)=$(VENV)/jax-$(version)/bin/python) \
		jax-switches=$(BIN)/python,$(jax_switches) -- $(capture_tests)

docs: $(VENV)/.ready-test $(VENV)/.ready-docs ## build the documentation into site/, strictly, and test it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(PYTEST) -m "site and not server"

lint: $(VENV)/.ready-test $(VENV)/.ready-check ## style, format, types, layers, a sentence for every test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/interrogate --quiet

test-server: $(VENV)/.ready-test $(VENV)/.ready-docs $(VENV)/.ready-browser ## run the tests that start a server or a browser
	$(PYTEST) $(WORKERS) -m server

wheel: $(VENV)/.ready-test ## build the wheel and try it without the source tree
	rm -rf dist
	$(BIN)/python -m build --no-isolation --wheel --outdir dist
	$(BIN)/python tests/package/try_wheel.py dist/*.whl

clean: ## remove the environment, caches and build results; runs/ stays
	rm -rf $(VENV) build dist site .*_cache .hypothesis .import-linter-cache .coverage
	find trackway tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("trackway needs Python 3.11 or newer; try `make PYTHON=python3.12`" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# `--group` reads [dependency-groups] in pyproject.toml; pip knows it since 25.1.
$(VENV)/.ready-%: pyproject.toml | $(BIN)/python
	@echo "installing the packages for '$*' into $(VENV) ..."
	@$(PIP) install -qq 'pip>=25.1'
	$(PIP) install -qq $($*_packages)
	@touch $@

$(VENV)/jax-%/.ready: pyproject.toml | $(VENV)/.ready-test
	@echo "installing jax $* into $(@D) ..."
	@$(BIN)/python -m venv --without-pip $(@D)
	$(PIP) --python $(@D)/bin/python install -qq --no-compile --editable . --group capture-tests 'jax==$*'
	@touch $@

$(VENV)/bench/.ready: pyproject.toml | $(BIN)/python
	@echo "installing the packages for 'bench' into $(@D) ..."
	@$(BIN)/python -m venv --without-pip $(@D)
	$(PIP) --python $(@D)/bin/python install -qq $(bench_packages)
	@touch $@
