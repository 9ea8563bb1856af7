# Every target sets up what it needs in .venv/ and can be run again.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Where byte code is not kept, each of the hundreds of processes of the tests compiles our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo history test lint audit format bench chaos wheel image site charts fuzz gpu docs lock clean

help:  ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## Create .venv/ with the pinned packages and the three commands

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV)/ (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY)  ## Run two nodes and five scripted pools through collector, analyses and report (SERVE=1: open pages)
	@$(BIN)/pool-collector demo --out data/demo
	@$(BIN)/pool-analysis build --dataset data/demo/dataset --pools data/demo/pools --database data/demo/demo.duckdb
	@$(BIN)/pool-analysis report --database data/demo/demo.duckdb --out data/demo/report.html
	@$(if $(SERVE),exec $(BIN)/pool-analysis serve --database data/demo/demo.duckdb, \
	    echo "pages: $(BIN)/pool-analysis serve --database data/demo/demo.duckdb, then http://127.0.0.1:9744")

# What cannot be fetched is named, and the rest goes on. A second call fetches only what is missing.
HISTORY := data/history
history: $(READY)  ## Fetch what others publish about the main chain, build and report; no node needed (LIST=file.toml)
	@$(BIN)/pool-collector fetch --history --keep $(if $(LIST),--list $(LIST)) \
	    --dataset $(HISTORY)/dataset --cache $(HISTORY)/fetched
	@$(BIN)/pool-analysis build --dataset $(HISTORY)/dataset --database $(HISTORY)/history.duckdb
	@$(BIN)/pool-analysis report --database $(HISTORY)/history.duckdb --out $(HISTORY)/report.html

# Many tests wait for a node most of the time, so there is one process more than there are cores.
test: $(READY)  ## Run all tests, some files at a time
	@$(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder \
	    --numprocesses $$($(BIN)/python -c 'import os; print(1 + len(os.sched_getaffinity(0)))')

lint: $(READY)  ## Check style, types, SQL, and the pinned packages for known vulnerabilities
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/sqlfluff lint --processes 2 analysis/sql
	@$(BIN)/python tests/audit.py

audit: $(READY)  ## Ask the package index for known vulnerabilities of what is pinned
	@$(BIN)/python tests/audit.py --strict

bench: $(READY)  ## Measure hashing, backfill, collector and analyses: ratios on the screen, figures in bench-*.json
	@$(BIN)/gpuhash check --messages 1000000
	@$(BIN)/gpuhash bench --peers --json bench-gpuhash.json
	@$(BIN)/python -m tests.gpuhash.bench_txids
	@$(BIN)/python -m tests.gpuhash.bench_share
	@$(BIN)/python tests/bench/bench_backfill.py --out bench-backfill.json
	@$(BIN)/python -m tests.bench.bench_check --out bench-check.json
	@$(BIN)/python -m tests.bench.bench_analysis --out bench-analysis.json
	@$(BIN)/python -m tests.bench.bench_builds --out bench-builds.json
	@$(BIN)/python -m tests.bench.bench_workers --out bench-workers.json
	@$(BIN)/python -m tests.bench.bench_whole_chain --out bench-whole-chain.json
	@$(BIN)/python -m tests.bench.bench_pages --database .cache/bench-analysis/4000/a.duckdb --out bench-pages.json
	@$(BIN)/python -m tests.bench.bench_live --out bench-live.json
	@$(BIN)/python tests/bench/bench_collector.py --out bench-collector.json

chaos: $(READY)  ## Break the live collector in every way we know (FAULT=name SEED=1|random JOBS=1 SCALE=1 RESUME=1)
	@$(BIN)/python -m tests.functional.chaos $(FAULT) --seed $(or $(SEED),1) --jobs $(or $(JOBS),1) \
	    $(if $(SCALE),--scale $(SCALE)) $(if $(RESUME),--resume) --json bench-chaos.json --table collector/CHAOS.md

wheel: $(READY)  ## Build the wheel, install it where nothing else is, and run the demo there
	@$(BIN)/python -m tests.wheel

image: $(READY)  ## Do the steps of the Dockerfile in a clean root folder, and run its services there (as root)
	@$(BIN)/python -m tests.clean_root

SITE := .cache/site-venv
site:  ## Build the site of the documents into build/site, with pictures of the demo's report
	@test -x $(SITE)/bin/mkdocs || { $(PYTHON) -m venv $(SITE) && \
	    $(SITE)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r tests/site/requirements.txt; }
	@$(SITE)/bin/python -m tests.site

charts: $(READY)  ## Take the chart library of the pages from npm, as analysis/serve/uplot/package-lock.json pins it
	@$(BIN)/python -m tests.chart_library

fuzz: $(READY)  ## Fuzz what reads strangers' bytes, with atheris (SECONDS=60 in all)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/fuzz/requirements.txt
	@$(BIN)/python -m tests.fuzz $(TARGET) --seconds $(or $(SECONDS),60)

# A GPU machine is often bare and offline: this takes whatever gpuhash and cupy the chosen Python has.
gpu:  ## Compare every kernel with the reference on this machine's GPU, and measure it
	@$(PYTHON) -m gpuhash check --backend cuda
	@$(PYTHON) -m gpuhash bench --backend cuda --batch 4194304 --seconds 0.5 --energy-seconds 10 --json bench-gpu.json
	@$(PYTHON) -m gpuhash bench --backend cuda --backend cpu --sizes --algorithm sha256d --algorithm sha3-256 \
	    --seconds 0.1 --energy-seconds 0 --json bench-gpu-sizes.json
	@$(PYTHON) -m tests.gpuhash.bench_pipes
	@if command -v compute-sanitizer >/dev/null; then \
	    compute-sanitizer --error-exitcode 1 $(PYTHON) -m gpuhash check --backend cuda --messages 1000; \
	  else echo "compute-sanitizer is not installed: memory checks left out"; fi
	@if $(PYTHON) -c 'import hypothesis, pytest, pytest_timeout; assert pytest.version_tuple >= (9,)' 2>/dev/null; then \
	    $(PYTHON) -m pytest -W default -m gpu tests/gpuhash/test_gpu.py; \
	  else echo "pytest 9, pytest-timeout or hypothesis is not installed: the same comparisons ran above, the tests are left out"; fi

docs: $(READY)  ## Bring the generated parts of the READMEs up to date
	@$(BIN)/cog -r -p "import tests.cog_parts as parts" $$(git ls-files '*.md' 'collector/dataset/rows.py' | xargs grep -l '\[\[\[cog')

format: $(READY)  ## Put sources in the house format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix-only .

lock: $(READY)  ## Pin the newest allowed versions, with hashes, in requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --no-emit-index-url --extra dev --upgrade --quiet pyproject.toml -o requirements.lock

clean:  ## Remove .venv/ and every cache
	@rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
