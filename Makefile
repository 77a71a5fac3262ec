# `make demo` and `make test` are all you need: each builds .venv if it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MINUTES ?= 10

.PHONY: demo demo-train test fuzz soak lint format clean

demo: $(READY)
	$(BIN)/flowinpaint demo -o demo

# Five minutes of training on generated scenes, on the CPU, in a new folder demo-train.
demo-train: $(READY)
	rm -rf demo-train
	$(BIN)/flowinpaint train demo --minutes 5 --device cpu -o demo-train

test: $(READY) lint
	$(BIN)/pytest -n auto

# Damaged and hostile files for every reader, and random calls; files of findings are kept in fuzz-findings.
fuzz: $(READY)
	$(BIN)/python tests/fuzz/run.py --minutes $(MINUTES) --seed $$(date +%s)

# Random fills for MINUTES=60; memory, threads, handles and temporary files are in soak.csv and soak.png.
soak: $(READY)
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --output soak

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo demo-train fuzz-findings .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("flowinpaint needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev,fast,opencv,pd,train]'
	$(BIN)/flowinpaint warmup --device cpu
	@touch $@
