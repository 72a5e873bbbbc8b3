# Each target sets up what it needs in the virtual environment .venv, from a lock file: base.lock for the package alone,
# requirements.lock with the extras that the tests need. TORCH=cpu takes PyTorch's own wheels without CUDA from its index.
PYTHON ?= python3
TORCH ?= $(shell cat .venv/torch 2>/dev/null)
BIN := .venv/bin
UV_VERSION := 0.13.7
EXTRAS := dev build docs timm tracking lite0 attribution export text ray slurm optim hub
INSTALL := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python

.PHONY: setup setup-all demo test test-all test-floor fuzz soak check results docs lock release clean

setup: .venv/base

setup-all: .venv/ready

.venv/uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Spurless needs Python 3.11 to 3.13; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --only-binary :all: uv==$(UV_VERSION); }
	@touch $@

.venv/base: base.lock pyproject.toml | .venv/uv
	$(call install,base.lock)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

.venv/ready: requirements.lock .venv/base
	$(call install,requirements.lock)
	@touch $@

ifeq ($(filter-out cuda,$(TORCH)),)
install = $(INSTALL) --require-hashes -r $(1)
else  # what is chosen once stays so; the lock file has the hashes of the wheels with CUDA
install = grep -oE '^torch(vision)?==[^ ]+' $(1) | $(INSTALL) --no-deps --torch-backend $(TORCH) -r - \
	&& awk '/^[a-z]/ {cuda = /^(torch|torchvision|triton|nvidia-|cuda-)/} !cuda' $(1) \
	  | $(INSTALL) --no-deps --require-hashes -r - && echo $(TORCH) > .venv/torch
endif

demo: setup
	$(BIN)/spurless demo

check: setup-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	test ! -x $(BIN)/hadolint || $(BIN)/hadolint Dockerfile

# One thread for each of two test processes: threads of the same process would only wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope

test: check
	$(PYTEST)

test-all: check
	$(PYTEST) --slow

# With the oldest torch that pyproject.toml allows, in an environment of its own (7 GB).
FLOOR := torch==2.9.* torchvision==0.24.*
FLOOR_TESTS := tests/train/test_predict.py tests/compress/test_export.py \
  tests/auditing/test_audit.py::test_the_command_prints_one_json_object_and_can_fail_a_build
test-floor: setup
	test -x .venv/floor/bin/python || $(BIN)/uv venv --quiet --python $(BIN)/python .venv/floor
	$(BIN)/uv pip install --quiet --python .venv/floor/bin/python $(FLOOR) -e '.[export]' 'pytest>=8.3' 'hypothesis>=6.110'
	.venv/floor/bin/spurless train pgd toy --set recipe.epochs=1 --device cpu --out .venv/floor/runs/toy
	OMP_NUM_THREADS=1 .venv/floor/bin/pytest $(FLOOR_TESTS)

# A wheel and an sdist, checked, tested as installed elsewhere; asks before anything is published.
release: setup-all
	.ci/release

# 5,000 hostile inputs; FUZZ_FIRST=10000 draws others.
fuzz: setup-all
	FUZZ_INPUTS=5000 $(PYTEST) --dist load -s tests/robust

# 200 kills, signals and full disks; what there is of them is kept in runs/soak. SOAK_KILLS, SOAK_SEED, SOAK_WORKERS.
soak: setup-all
	$(BIN)/python -m tests.robust.soak

results: setup-all
	$(BIN)/python -m studies.readme
	$(BIN)/python -m studies.pages
	$(BIN)/python -m studies.papers
	$(BIN)/python -m studies.unpublished
	$(BIN)/python -m studies.method_pages

# The site, in site/; a broken link or a page that is not in the navigation is an error.
docs: setup-all
	test -x $(BIN)/mkdocs || $(BIN)/uv pip install --quiet --python $(BIN)/python --extra docs -r pyproject.toml
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml

lock: setup
	$(LOCK) $(EXTRAS:%=--extra %) -o requirements.lock --upgrade
	$(LOCK) --extra build -c requirements.lock -o base.lock --upgrade

clean:
	rm -rf .venv runs site
