# Each target sets up what it needs: a virtual environment in .venv, from the lock file.
PYTHON ?= python3
BIN := .venv/bin
UV_VERSION := 0.13.7
EXTRAS := dev docs timm tracking lite0 attribution export text ray slurm optim hub

.PHONY: setup demo test test-all fuzz soak check results docs lock clean

setup: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "Spurless needs Python 3.11 to 3.13; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --only-binary :all: uv==$(UV_VERSION); }
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

demo: setup
	$(BIN)/spurless demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# One thread for each of two test processes: threads of the same process would only wait for one another.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadscope

test: check
	$(PYTEST)

test-all: check
	$(PYTEST) --slow

# 5,000 hostile inputs; FUZZ_FIRST=10000 draws others.
fuzz: setup
	FUZZ_INPUTS=5000 $(PYTEST) --dist load -s tests/robust

# 200 kills, signals and full disks; what there is of them is kept in runs/soak. SOAK_KILLS, SOAK_SEED, SOAK_WORKERS.
soak: setup
	$(BIN)/python -m tests.robust.soak

results: setup
	$(BIN)/python -m studies.readme
	$(BIN)/python -m studies.pages
	$(BIN)/python -m studies.papers

# The site, in site/; a broken link or a page that is not in the navigation is an error.
docs: setup
	test -x $(BIN)/mkdocs || $(BIN)/uv pip install --quiet --python $(BIN)/python --extra docs -r pyproject.toml
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	  $(EXTRAS:%=--extra %) pyproject.toml -o requirements.lock --upgrade

clean:
	rm -rf .venv runs site
