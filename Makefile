# demo, test, lint, bench, mutants: each makes .venv and installs when needed; there is nothing to do first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := build/types

.PHONY: demo test lint types bench mutants clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[torch,hf,dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/streamgauge demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto -q

lint: $(STAMP) types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(TYPES) $(BIN)/mypy -p streamgauge

# mypy cannot follow package-dir: give it the tree as it is installed.
types:
	rm -rf $(TYPES) && mkdir -p $(TYPES)/streamgauge
	ln -s $(CURDIR)/streamgauge/* $(TYPES)/streamgauge/
	for room in theory kernels simulate proofs examples; do ln -s $(CURDIR)/$$room $(TYPES)/streamgauge/$$room; done

bench: $(STAMP)
	$(BIN)/streamgauge bench theory
	$(BIN)/streamgauge bench convert
	$(BIN)/streamgauge verify --level quick --no-torch
	$(BIN)/streamgauge verify --level full

# Kernels broken one line at a time, each of which a check must notice; the last line is the score.
mutants: $(STAMP)
	$(BIN)/python tests/mutants/run.py

clean:
	rm -rf $(VENV) build dist *.egg-info
