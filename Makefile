.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are first imported: most of what is installed never is.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
SERVE ?= yes
PORT ?= 8099
RATE ?= 5000
SECONDS ?= 20
DAYS ?= 30
FUZZ_SECONDS ?= 600
ROWS ?= 1000000
SCALE ?= 1
E2E ?= test-e2e
WORKERS ?= 4
LEVEL ?= quick
DOCKER ?= docker
KAFKA_IMAGE ?= apache/kafka:4.1.0
REGISTRY ?=
TAG ?= $(shell awk -F '"' '/^version = / {print $$2; exit}' pyproject.toml)
IMAGES := operator runtime spark
comma := ,
KIND_CONFIG := build/kind/kubeconfig

# Each of the hundreds of processes that tests start would compile all modules anew, for two seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart demo-rollup demo-stream demo-upsert test test-all durations check check-types check-all-else bench bench-pruning bench-merge bench-ingest bench-upsert bench-plots bench-clickbench bench-tpch mutants fuzz fuzz-bounds crds docs plans format clean wheel images kind-up kind-test kind-down test-e2e test-e2e-all chart

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.quickstart ## Build a year of real flights with Spark, serve them, answer five queries (SERVE=no ends after them)
	@$(BIN)/python -m examples.demos.quickstart --port $(PORT) $(if $(filter no,$(SERVE)),--no-serve,--serve)

demo-rollup: $(VENV)/.dev ## Merge a year of flights, 366 days to 13 months to a row per day, carrier and origin; segments, bytes, times
	@$(BIN)/python -m tests.bench.flights_rollup

demo-stream: $(VENV)/.quickstart ## Consume a day of flights as events and watch (RATE=5000 a second, SECONDS=20; SERVE=no ends after it)
	@$(BIN)/python -m examples.demos.stream_demo --port $(PORT) --rate $(RATE) --seconds $(SECONDS) $(if $(filter no,$(SERVE)),--no-serve,--serve)

demo-upsert: $(VENV)/.quickstart ## Keep a departures board up to date from a stream of events and watch (RATE=5000 a second, DAYS=30; SERVE=no ends after it)
	@$(BIN)/python -m examples.demos.upsert_demo --port $(PORT) --rate $(RATE) --days $(DAYS) $(if $(filter no,$(SERVE)),--no-serve,--serve)

# Folders of few and long tests first, in the order given: a long one that begins last would leave the other workers idle.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder \
  tests/spark tests/kube tests/faults tests/sql tests/contracts tests/oracle tests/simulation tests/fuzz tests/clients \
  tests/plans tests/golden tests/kernels tests/node tests/unit

test: $(VENV)/.dev ## Run the tests that every change must pass, with fixed seeds, over WORKERS processes (4)
	$(PYTEST) --junitxml build/reports/test.xml $(PYTEST_ARGS)

test-all: $(VENV)/.dev ## Run every test, slow ones and more random cases too, the seed printed (an hour and a half)
	MERLOT_TESTS=all $(PYTEST) --junitxml build/reports/test-all.xml $(PYTEST_ARGS)

test-e2e: $(VENV)/.dev ## Run the end-to-end tests on the cluster of KUBECONFIG, with the images of MERLOT_IMAGES
	$(BIN)/python -m pytest tests/e2e --junitxml build/reports/test-e2e.xml $(PYTEST_ARGS)

test-e2e-all: $(VENV)/.dev ## Run the slow end-to-end tests too
	MERLOT_TESTS=all $(BIN)/python -m pytest tests/e2e --junitxml build/reports/test-e2e-all.xml $(PYTEST_ARGS)

durations: $(VENV)/.dev ## Print where the time of the last test runs went, by folder, file and test
	@$(BIN)/python -m tests.durations

wheel: $(VENV)/.dev ## Build a wheel in dist/, with the kernels' machine code for most processors of this kind
	env NUMBA_CACHE_DIR=build/kernels $$($(BIN)/python -m merlot.kernels.baseline) $(BIN)/python -m merlot.kernels.warm
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

images: $(IMAGES:%=image-%) ## Build the images merlot/{operator,runtime,spark}:TAG with Docker (REGISTRY=host/ goes before)

image-%:
	$(DOCKER) build --target $* --file images/Dockerfile --tag $(REGISTRY)merlot/$*:$(TAG) .

kind-up: ## Start a kind cluster (kind-config.yaml), with the images in it
	@mkdir -p $(dir $(KIND_CONFIG))
	kind get clusters 2>/dev/null | grep -qx merlot || kind create cluster --config kind-config.yaml --kubeconfig $(KIND_CONFIG)
	@$(MAKE) images image-e2e
	$(DOCKER) tag $(REGISTRY)merlot/runtime:$(TAG) $(REGISTRY)merlot/runtime:next
	kind load docker-image --name merlot $(foreach one,$(IMAGES) e2e,$(REGISTRY)merlot/$(one):$(TAG)) $(REGISTRY)merlot/runtime:next
	@echo 'export KUBECONFIG=$(abspath $(KIND_CONFIG))'

kind-test: kind-up ## Run the end-to-end tests on the kind cluster (E2E=test-e2e-all: the slow ones too)
	KUBECONFIG=$(abspath $(KIND_CONFIG)) MERLOT_IMAGES=$(subst $(eval ) ,$(comma),$(foreach one,$(IMAGES) e2e,$(one)=$(REGISTRY)merlot/$(one):$(TAG)) runtime-next=$(REGISTRY)merlot/runtime:next,kafka=$(KAFKA_IMAGE)) \
	  $(MAKE) $(E2E)

kind-down: ## Delete the kind cluster
	kind delete cluster --name merlot --kubeconfig $(KIND_CONFIG)

check: $(VENV)/.dev ## Lint, types, layers, workflows; that CRDs, generated pages and plans match the code
	@$(MAKE) --no-print-directory --output-sync -j2 check-types check-all-else

check-types: $(VENV)/.dev
	$(BIN)/mypy

check-all-else: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m merlot.spec.crd --check crds
	$(BIN)/python -m tests.contracts.ingestion.page --check docs
	$(BIN)/python -m tests.contracts.functions.page --check docs
	$(BIN)/python -m tests.plans.plan_fixtures --check
	$(BIN)/python -m tests.plans.rewrite_fixtures --check
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-actions .github/actions/*/action.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --quiet --offline --no-progress --min-severity medium .github

bench: $(VENV)/.dev ## Measure against DuckDB and Parquet in the same run, print ratios
	$(BIN)/python -m tests.bench

bench-pruning: $(VENV)/.dev ## Measure segment pruning under load by wrk (apt-get install wrk), three modes, beside Pinot's figures
	$(BIN)/python -m tests.bench.pruning

bench-merge: $(VENV)/.dev ## Measure concat and rollup on one core against DuckDB doing the same from Parquet
	$(BIN)/python -m tests.bench.merge

bench-ingest: $(VENV)/.dev ## Measure streams on one core, end to end and while consuming, beside Pinot's figures; freshness, memory, restart
	$(BIN)/python -m tests.bench.ingest

bench-upsert: $(VENV)/.dev ## Measure upserts on one core, beside Pinot's figures: per second, bytes per key; restarts; what valid docs cost queries
	$(BIN)/python -m tests.bench.upsert
	$(BIN)/python -m tests.bench.upsert_stream
	$(BIN)/python -m tests.bench.upsert_queries
	$(BIN)/python -m tests.bench.upsert_restart
	$(BIN)/python -m tests.bench.upsert_node

bench-clickbench: $(VENV)/.peers ## Measure ClickBench's 43 queries beside DuckDB and chDB, literals of SEED (random), ROWS=1000000 or 10000000; first runs
	$(BIN)/python -m tests.bench.clickbench --rows $(ROWS) $(if $(SEED),--seed $(SEED))

bench-tpch: $(VENV)/.dev ## Measure single-table queries over TPC-H's lineitem and orders beside DuckDB, DOUBLE and BIG_DECIMAL (SCALE=1)
	$(BIN)/python -m tests.bench.tpch --scale $(SCALE) $(if $(SEED),--seed $(SEED))

bench-plots: $(VENV)/.dev ## Measure and draw the plots of the documentation, docs/images (MERLOT_KAFKA: from a real Kafka)
	$(BIN)/python -m tests.bench.plots

mutants: $(VENV)/.dev ## Undo 40 fixes of the past one by one, and show that the tests catch each (LEVEL=quick, ONLY='query sql')
	@$(BIN)/python -m tests.mutants --level $(LEVEL) $(if $(ONLY),--only $(ONLY))

fuzz: $(VENV)/.dev ## Run the random tests for FUZZ_SECONDS (600) each, the seed printed
	MERLOT_TESTS=fuzz MERLOT_FUZZ_SECONDS=$(FUZZ_SECONDS) \
	  $(BIN)/python -m pytest tests/fuzz tests/sql tests/simulation tests/oracle tests/unit/query/pruning tests/unit/upsert tests/unit/server/test_upsert_listener.py tests/unit/server/test_batch_index.py tests/unit/broker/test_consuming_ranges.py tests/unit/broker/test_time_boundary.py tests/faults tests/kube/test_operator_scale.py \
	  --timeout=0 $(PYTEST_ARGS)

fuzz-bounds: $(VENV)/.dev ## Run SQL cases, kernels and random queries with every index of every kernel checked (FUZZ_SECONDS)
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(abspath build/numba-checked) MERLOT_TESTS=fuzz MERLOT_FUZZ_SECONDS=$(FUZZ_SECONDS) MERLOT_INDEX_SETS=0 \
	  $(BIN)/python -m pytest tests/kernels tests/sql tests/oracle -k 'not embedded and not zookeeper and not broker' \
	  --timeout=0 $(PYTEST_ARGS)

crds: $(VENV)/.dev ## Regenerate crds/ from the pydantic models
	$(BIN)/python -m merlot.spec.crd crds

plans: $(VENV)/.dev ## Regenerate the plans of tests/plans from EXPLAIN
	@$(BIN)/python -m tests.plans.plan_fixtures
	@$(BIN)/python -m tests.plans.rewrite_fixtures

docs: $(VENV)/.dev ## Regenerate the tables of docs/ingestion.md and docs/functions.md from the tested matrix and the registries
	$(BIN)/python -m tests.contracts.ingestion.page docs
	$(BIN)/python -m tests.contracts.functions.page docs

format: $(VENV)/.dev ## Format code, fix what ruff can fix, wrap pages
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tests.pages

clean: ## Remove the virtual environment, caches and everything built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'merlot needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip || echo 'Going on with the pip of this Python, which takes longer.'

$(VENV)/.quickstart: pyproject.toml | $(VENV)/bin/pip
	@echo 'Installing Merlot with Spark (about 500 MB; some minutes the first time) …'
	$(PIP) -e '.[quickstart]'
	@echo 'Compiling kernels in the background; what is needed sooner is compiled then (log: $(VENV)/kernels.log) …'
	@$(BIN)/python -m merlot.kernels.warm --background $(VENV)/kernels.log
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/pip
	@echo 'Installing Merlot with Spark and the test tools (about 600 MB; some minutes the first time) …'
	$(PIP) -e '.[dev]'
	@echo 'Compiling the query kernels …'
	$(BIN)/python -m merlot.kernels.warm
	@touch $@ $(VENV)/.quickstart

$(VENV)/.peers: $(VENV)/.dev
	@echo 'Installing chDB to measure beside (800 MB) …'
	$(PIP) -e '.[peers]'
	@touch $@
