# Targets for people and for CI. Everything runs in .venv, made from constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
LIGHT := .venv/.light
FULL := .venv/.full
SLOW := .venv/.slow
BENCH := .venv/.bench
PYTEST := $(BIN)/python -m pytest
# A plain path instead of an import hook, which every start of dlv would have to load.
EDITABLE := --config-settings editable_mode=compat
# One more than there are cores, since many tests wait for processes, pages and clocks.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# The demo and the tests start dlv thousands of times: its compiled modules are kept, as a user's are.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-slow reliability fuzz bench paper lint format docs pictures screenshots golden clean

help:
	@echo "make demo       build demo-repository from examples/ and show the commands at work"
	@echo "make test       all tests but the slow ones (installs torch and scikit-learn)"
	@echo "make test-slow  the slow ones: crashes at many points, big files, Ray, a zoo of models"
	@echo "make reliability  the figures of the crash harness; POINTS=0: at every call (hours); CROWD=32x50"
	@echo "make fuzz       every parser against inputs with something wrong; RUNS=1000000: so many of each"
	@echo "make lint       ruff and mypy --strict"
	@echo "make docs       write the reference pages in docs/, and what the sessions in the other pages print"
	@echo "make pictures   draw the pictures of the README: a terminal, and the sizes of stores"
	@echo "make screenshots  pictures of every page and report, into screenshots/ (needs Chromium)"
	@echo "make bench      run the benchmarks; CORPUS=all: also on 22.7 M weights (an hour)"
	@echo "make paper      figures 6(a) to 6(d) of the ModelHub paper, into paper/"
	@echo "make golden NAME=format   write golden bytes of a new format version"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dlv needs Python 3.11")'
	$(PYTHON) -m venv .venv

# Enough for the demo: no torch.
$(LIGHT): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt $(EDITABLE) -e .
	touch $@

# Enough for the tests and the linters.
$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt $(EDITABLE) -e '.[dev]' torch==2.13.0 scikit-learn
	touch $@ $(LIGHT)

# With Ray, and the models of the zoo, whose tests are all slow.
$(SLOW): pyproject.toml constraints.txt $(FULL)
	$(BIN)/python -m pip install -q -c constraints.txt $(EDITABLE) -e '.[dev,ray]' torch==2.13.0
	@# Apart, since transformers would load torchvision, which may be made for another build of torch.
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps --target .venv/zoo timm torchvision onnxscript onnx-ir
	@# A store that lies, for the tests of remotes; without npm they are skipped.
	-@command -v npm >/dev/null && npm install --silent --prefix .venv/s3rver s3rver@3.7.1
	touch $@

# With the programs that the benchmarks compare with.
$(BENCH): pyproject.toml constraints.txt $(FULL)
	$(BIN)/python -m pip install -q -c constraints.txt $(EDITABLE) -e '.[dev,bench]' torch==2.13.0
	touch $@

.venv: $(FULL)

demo: $(LIGHT)
	rm -rf demo-repository
	@$(BIN)/python examples/demo.py demo-repository

test: $(FULL)
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" $(ARGS)

test-slow: $(SLOW)
	$(PYTEST) -n auto -m "slow" --timeout 3600 -o faulthandler_timeout=3590 $(ARGS)

reliability: $(FULL)
	$(BIN)/python tools/reliability.py --points $(or $(POINTS),40) --crowd $(or $(CROWD),8x20) \
	  --out reliability.json

bench: $(BENCH)
	@set -e; for file in benchmarks/*.py; do \
	  echo "== $$file"; $(BIN)/python "$$file"; \
	done
	@echo "== benchmarks/storage"
	@$(BIN)/python -m benchmarks.storage --corpus $(or $(CORPUS),lenet) $(ARGS)
	@echo "== benchmarks/sizes"
	@$(BIN)/python -m benchmarks.sizes --only sides,pair,dtypes
	@echo "== benchmarks/progressive"
	@$(BIN)/python -m benchmarks.progressive
	@echo "== benchmarks/dql"
	@$(BIN)/python -m benchmarks.dql
	@echo "== benchmarks/trials"
	@$(BIN)/python -m benchmarks.trials
	@echo "== benchmarks/curves"
	@$(BIN)/python -m benchmarks.curves
	@echo "== benchmarks/pages"
	@$(BIN)/python -m benchmarks.pages

paper: $(BENCH)
	@$(BIN)/python -m benchmarks.paper --out paper $(ARGS)

fuzz: $(FULL)
	$(BIN)/python -m tests.fuzz.run --runs $(or $(RUNS),10000) $(ARGS)

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(FULL)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(LIGHT)
	$(BIN)/python tools/reference.py > docs/commands.md.new
	mv docs/commands.md.new docs/commands.md
	$(BIN)/python tools/query_reference.py > docs/query-reference.md.new
	mv docs/query-reference.md.new docs/query-reference.md
	$(BIN)/python tools/console.py

# STORES=FILE: the last line that `python -m benchmarks.storage --stores` printed.
pictures: $(FULL)
	$(BIN)/python tools/pictures.py $(STORES)

screenshots: $(FULL)
	$(BIN)/python tools/screenshots.py $(ARGS)

golden: $(FULL)
	$(BIN)/python tools/golden.py "$(NAME)"

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
