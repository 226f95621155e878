# Two commands do everything on a fresh machine with Python 3.11+, Java 17+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARCHIVE := $(VENV)/spark.jsa
BENCH_VENV := .venv-bench
export NO_MKDOCS_2_WARNING := 1
DIST_VENV := .venv-dist
WHEEL_VENV := .venv-wheel

.PHONY: setup demo quick test test-long test-newest check docs docs-site diagrams dist bench lock clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Lakebed needs Python 3.11 or newer; $$($(PYTHON) --version) was found. On Debian: apt-get install python3.11 python3.11-venv, then make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@./scripts/require-java
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $(STAMP)

$(ARCHIVE): scripts/archive_classes.py $(STAMP)
	@$(BIN)/python scripts/archive_classes.py $@

demo: setup
	@$(BIN)/python -m lakebed.cli.app demo

# While you work: lint, unit tests, and what needs a registry on SQLite alone. tests/quick.txt says which.
quick: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@./scripts/in-memory $(BIN)/python -m pytest -m "not long" -k "not postgresql" -n 2 @tests/quick.txt

test: setup $(ARCHIVE)
	@./scripts/in-memory $(BIN)/python -m pytest -m "not long" -n 2 --dist loadgroup --durations 30 --ignore tests/docs

test-long: setup $(ARCHIVE)
	@./scripts/in-memory $(BIN)/python -m pytest -n 2 --dist loadgroup

# The newest releases that pyproject.toml allows, without the lock; at the end what its upper bounds hold back.
test-newest:
	@./scripts/require-java
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade --editable ".[test,check]"
	@touch .venv-newest/.installed
	@$(MAKE) --no-print-directory quick VENV=.venv-newest
	.venv-newest/bin/pip list --outdated

check: setup $(ARCHIVE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/mypy scripts
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m pytest tests/docs

docs: setup
	$(BIN)/python scripts/build_docs.py

docs-site: setup
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

# After a change of docs/diagrams/*.dot or of the registry's tables. Needs npm; the pictures are kept.
diagrams: docs
	npm install --silent --no-audit --no-fund --prefix .venv-diagrams @viz-js/viz@3.31.0
	$(BIN)/python scripts/draw_diagrams.py .venv-diagrams

# Wheel and source distribution, then the demo from the wheel, in a new environment and an empty directory.
dist:
	@./scripts/require-java
	rm -rf dist
	$(PYTHON) -m venv --clear $(DIST_VENV)
	$(DIST_VENV)/bin/pip install --quiet build
	$(DIST_VENV)/bin/python -m build --outdir dist .
	$(PYTHON) -m venv --clear $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/pip install --quiet --require-hashes -r requirements-run.lock
	$(WHEEL_VENV)/bin/pip install --quiet --no-deps dist/*.whl
	@place=$$(mktemp -d) && wheel=$$PWD/$(WHEEL_VENV)/bin/lakebed && cd $$place && $$wheel demo && rm -rf $$place

bench: setup $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python bench/registry.py --scale full
	$(BIN)/python bench/pipeline.py
	$(BIN)/python bench/service.py
	$(BIN)/python bench/astha.py
	$(BIN)/python bench/iceberg.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/commits_at_scale.py
	$(BIN)/python bench/command_line.py
	$(BENCH_VENV)/bin/python bench/compaction.py --spark $(BIN)/python

$(BENCH_VENV)/.installed: bench/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet -r bench/requirements.txt
	$(BENCH_VENV)/bin/pip install --quiet --no-deps --editable .
	@touch $@

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --extra test --extra check --extra docs pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --constraints requirements.lock pyproject.toml -o requirements-run.lock

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DIST_VENV) $(WHEEL_VENV) .venv-newest dist site
