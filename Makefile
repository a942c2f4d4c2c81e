# `make help` lists the targets. All packages are installed into ./.venv.
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
# The number of seeds, kills and providers in tests (tests/depth.py): small, ci, or all (a night).
DEPTH ?= small
# A folder or file below tests/: `make test PART=log` runs only its tests, without the checks.
PART ?=
# More processes than cores, because tests also wait; each process uses up to 3 GB with its JVMs.
TEST_PROCESSES ?= $(if $(filter small,$(DEPTH)),4,3)
# The files with slow tests that `make test-all` runs; all of them if empty.
SLOW_TESTS ?=
SLOW_PROCESSES ?= 2
# The mutants that `make test-mutants` runs, by names or parts of names; all of them if empty.
MUTANTS ?=
BIN := $(VENV)/bin
COMPILED := $(wildcard sparklog/format/*.pxd)
PACKAGE := pyproject.toml setup.py $(COMPILED) $(wildcard $(COMPILED:.pxd=.py))
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# With this variable, each of some hundred processes would compile all modules that it imports, and
# pytest would rewrite the assertions of all tests in each process.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo docs test suite test-all test-spark test-mutants lint bench jars wheel release clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	{ echo "sparklog needs Python 3.11 or later, and $(PYTHON) is $$($(PYTHON) -V 2>&1): run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	{ rm -rf $(VENV); echo "$(PYTHON) can't make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }

# A stamp for each set of extras; an editable install also compiles the record kernel in place.
$(VENV)/.demo: $(BIN)/python $(PACKAGE)
	$(BIN)/python -m pip install -q -e '.[demo]'
	@touch $@

$(VENV)/.docs: $(BIN)/python $(PACKAGE)
	$(BIN)/python -m pip install -q -e '.[docs]'
	@touch $@

$(VENV)/.test: $(BIN)/python $(PACKAGE)
	$(BIN)/python -m pip install -q -e '.[test]'
	@touch $@ $(VENV)/.demo $(VENV)/.docs

$(VENV)/.bench: $(BIN)/python $(PACKAGE)
	$(BIN)/python -m pip install -q -e '.[bench]'
	@touch $@ $(VENV)/.test $(VENV)/.demo $(VENV)/.docs

demo: $(VENV)/.demo ## the flights of 2013 through Spark into a log and back, with a kill in between
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python examples/quickstart.py

docs: $(VENV)/.docs ## the documentation as a site in build/site: open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: $(VENV)/.test ## ruff, mypy --strict, import-linter, codespell, mkdocs, scalafmt and scalac -Xlint
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/codespell
	@mkdir -p build && NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict >build/mkdocs.log 2>&1 || \
	{ cat build/mkdocs.log; exit 1; }
	@home="$$(scripts/java 2>/dev/null)"; JAVA_HOME="$$home" $(BIN)/python -m tests.scala lint
	@$(BIN)/python -m tests.test_tidy

test: $(VENV)/.test ## the checks and the suite, in 11 minutes; DEPTH=ci: more seeds, kills; DEPTH=all: a night
	@scripts/java >/dev/null && $(MAKE) --no-print-directory -j 2 $(if $(PART),,lint) suite

suite: $(VENV)/.test
	@home="$$(scripts/java)" && JAVA_HOME="$$home" SPARKLOG_TEST_DEPTH=$(DEPTH) $(BIN)/python -m tests.suite -n $(TEST_PROCESSES) --dist loadgroup --durations 25 $(if $(PART),tests/$(PART),--junitxml build/junit-$(DEPTH).xml) $(PYTEST_ARGS)

test-all: $(VENV)/.test ## the tests marked slow, in an hour or two; records them in docs/slow-tests.md
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python -m tests.slow_tests -n $(SLOW_PROCESSES) $(SLOW_TESTS)

test-spark: $(VENV)/.test ## all Spark tests with another PySpark: make test-spark VERSION=4.1.4
	@home="$$(scripts/java)" && JAVA_HOME="$$home" SPARKLOG_TEST_DEPTH=$(DEPTH) $(BIN)/python -m tests.other_sparks $(VERSION) -n $(TEST_PROCESSES) --dist loadgroup $(PYTEST_ARGS)

test-mutants: $(VENV)/.test ## put one-line bugs in, one after the other: the small suite must catch each
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python -m tests.mutants $(MUTANTS)

bench: $(VENV)/.bench ## the benchmarks, as one table with ratios
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python -m tests.benchmarks $(BENCH_ARGS)

jars: $(BIN)/python ## the jars for the wheel, one for each Spark that needs one; UPDATE=--update
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python scripts/jars.py $(UPDATE)

wheel: $(BIN)/python ## the wheel, with compiled kernel and jars, in dist/
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python -m pip wheel -q --no-deps -w dist .

release: $(VENV)/.test ## wheel, source distribution and a Maven repository of the jars, in dist/
	@rm -rf dist && home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python scripts/jars.py --maven dist/maven
	@home="$$(scripts/java)" && JAVA_HOME="$$home" $(BIN)/python -c "from setuptools import build_meta as b; b.build_sdist('dist')" >/dev/null
	@$(BIN)/python -m pip wheel -q --no-deps -w dist dist/sparklog-*.tar.gz
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m auditwheel -v repair -w dist dist/sparklog-*-linux_*.whl >/dev/null 2>&1
	@rm dist/sparklog-*-linux_*.whl
	@ls dist

clean: ## remove the virtual environment, caches and builds
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f sparklog/format/*.c sparklog/format/*.so sparklog/jvm/jars/*.jar
