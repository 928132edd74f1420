# Two commands set everything up: `make demo` and `make test`. Only Python 3.11 or later and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

demo: $(VENV)/.runtime
	OMP_NUM_THREADS=1 $(BIN)/pacbayes demo  # so small a network gains nothing from more

test: lint
	$(BIN)/python -m pytest -n 3 --dist worksteal  # one more than two cores: some tests wait for processes

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Any warning is an error.
docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "Written: docs/_build/index.html"

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache

# torch first and by its exact version: a range would take a build with gigabytes of GPU libraries.
$(VENV)/.torch: constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)" -c constraints.txt
	touch $@

$(VENV)/.runtime: $(VENV)/.torch pyproject.toml
	$(BIN)/pip install --quiet -e . -c constraints.txt
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install --quiet -e ".[dev,docs]" -c constraints.txt
	touch $@
