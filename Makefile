# Two commands for a newcomer: `make tour`, `make test`. Both set up what they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS := tables,ray,spark,k8s,zstd,codecs,torch,solve,learn,clone,dev
# Errors are shown, chatter about indexes is not.
QUIET := -qq --disable-pip-version-check
PIP := $(BIN)/python -m pip install $(QUIET) -c constraints.txt
BUILD_TOOLS := pip setuptools scikit-build-core nanobind cmake ninja
CXX_FILES := $(shell find native -name '*.[ch]pp')
NATIVE := CMakeLists.txt $(filter-out native/tests/%,$(CXX_FILES))
# Two BLAS threads on a busy machine cost twenty times one.
export OMP_NUM_THREADS := 1
PYTEST := $(BIN)/python -m pytest -q
JUNIT := build/junit

.PHONY: help install tour test test-slow lint types layers unit ray spark docs native-test bench format clean

help:
	@echo "make tour       run every system on bundled data, leave report/index.html"
	@echo "make test       every check and test (about twelve minutes)"
	@echo "make install    .venv with the native build and all extras"
	@echo "make test-slow  property tests with many more examples"
	@echo "make bench      the engine against its peers"
	@echo "make docs       the documentation, in site/"
	@echo "make format     let ruff and clang-format format and fix"
	@echo "make clean      remove what was built"

install: $(VENV)/.packages $(VENV)/.native

# The core's packages: again only when what lists them has changed.
$(VENV)/.core: pyproject.toml constraints.txt
	@echo "==> [1/3] packages of the core, into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "no virtual environment could be made; install the distribution's 'python3-venv'"; exit 1; }
	@date +%s > $(VENV)/.began
	@$(PIP) $(BUILD_TOOLS) $$($(BIN)/python tools/requirements.py)
	@touch $@

# The native core: again only when its sources have changed.
$(VENV)/.native: $(VENV)/.core $(NATIVE)
	@echo "==> [2/3] building the native core"
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# torch is unpacked while the compiler runs: `tour` asks for both at once.
$(VENV)/.torch: $(VENV)/.core
	@$(PIP) $$($(BIN)/python tools/requirements.py torch)
	@touch $@

# Everything else that the tests need. pyspark comes as sources, which setuptools packs.
$(VENV)/.packages: $(VENV)/.core | $(VENV)/.native
	@echo "==> packages of the tests (the first time takes a few minutes)"
	@PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation $$($(BIN)/python tools/requirements.py $(EXTRAS))
	@touch $@ $(VENV)/.torch

tour:
	@$(MAKE) --no-print-directory -j2 $(VENV)/.native $(VENV)/.torch
	@echo "==> [3/3] every system on bundled data"
	@$(BIN)/gnomon tour report
	@if [ -f $(VENV)/.began ]; then \
	  echo "==> installed and toured in $$(($$(date +%s) - $$(cat $(VENV)/.began))) s"; rm $(VENV)/.began; fi

# Cheapest first, so that a mistake shows in seconds.
test: install lint types layers native-test unit ray spark docs
	@$(BIN)/python tests/closing_line.py $(JUNIT)/unit.xml $(JUNIT)/ray.xml $(JUNIT)/spark.xml

lint: install
	@echo "==> ruff"
	@$(BIN)/ruff format --check -q . && $(BIN)/ruff check -q .
	@echo "==> clang-format"
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

types: install
	@echo "==> mypy"
	@$(BIN)/mypy

layers: install
	@echo "==> import-linter"
	@mkdir -p build
	@$(BIN)/lint-imports --no-cache > build/layers.log || { cat build/layers.log; exit 1; }

native-test: install
	@echo "==> native tests, with address and undefined-behaviour sanitizers"
	@PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B build/sanitized -G Ninja --log-level=ERROR \
	  -DGNOMON_NATIVE_TESTS=ON -DGNOMON_DEVELOPER=ON -DCMAKE_BUILD_TYPE=Debug > /dev/null
	@PATH="$(abspath $(BIN)):$$PATH" cmake --build build/sanitized > build/sanitized.log || \
	  { cat build/sanitized.log; exit 1; }
	@build/sanitized/engine_test
	@for kind in threads threads_asan threads_tsan; do build/sanitized/native/threads/tests/$${kind}_test || exit 1; done

unit: install
	@echo "==> tests"
	@mkdir -p $(JUNIT)
	@$(PYTEST) -n 2 --dist worksteal -m "not ray and not spark and not slow" --junitxml $(JUNIT)/unit.xml

# A real Ray takes long to start: its tests run once, together.
ray: install
	@echo "==> tests on a real Ray"
	@mkdir -p $(JUNIT)
	@$(PYTEST) -m ray tests --junitxml $(JUNIT)/ray.xml

# So does a real Spark, and it wants a machine of its own.
spark: install
	@echo "==> tests on a real Spark"
	@mkdir -p $(JUNIT)
	@$(PYTEST) -m "spark and not slow" tests --junitxml $(JUNIT)/spark.xml

test-slow: install
	@HYPOTHESIS_PROFILE=thorough $(PYTEST) -n 2 --dist worksteal -m "not ray and not spark" tests --timeout 1800
	@$(PYTEST) -m "spark and slow" tests

docs: install
	@echo "==> documentation"
	@$(BIN)/python docs/build.py

bench: install
	@$(BIN)/python benchmarks/engine.py

format: install
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@$(BIN)/clang-format -i $(CXX_FILES)

clean:
	rm -rf $(VENV) build report site .pytest_cache .mypy_cache .ruff_cache .hypothesis
