# Two commands do everything on a fresh machine with Python 3.11+, Java 17+ and make: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARCHIVE := $(VENV)/spark.jsa
BENCH_VENV := .venv-bench

.PHONY: setup demo test test-long check docs bench lock clean

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

test: setup $(ARCHIVE)
	@./scripts/in-memory $(BIN)/python -m pytest -m "not long" -n 2 --dist loadgroup --ignore tests/docs

test-long: setup $(ARCHIVE)
	@./scripts/in-memory $(BIN)/python -m pytest -n 2 --dist loadgroup

check: setup $(ARCHIVE)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/mypy scripts
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/docs

docs: setup
	$(BIN)/python scripts/build_docs.py

bench: setup $(BENCH_VENV)/.installed
	$(BENCH_VENV)/bin/python bench/registry.py --scale full
	$(BIN)/python bench/pipeline.py
	$(BIN)/python bench/service.py
	$(BIN)/python bench/astha.py
	$(BIN)/python bench/iceberg.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/command_line.py
	$(BENCH_VENV)/bin/python bench/compaction.py --spark $(BIN)/python

$(BENCH_VENV)/.installed: bench/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/pip install --quiet -r bench/requirements.txt
	$(BENCH_VENV)/bin/pip install --quiet --no-deps --editable .
	@touch $@

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --extra test --extra check pyproject.toml -o requirements.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet --constraints requirements.lock pyproject.toml -o requirements-run.lock

clean:
	rm -rf $(VENV) $(BENCH_VENV)
