# Everything one does with this repository. `make` alone prints the list.
#
# Needs: Python 3.11, make, and a package registry that pip can reach. All else goes into .venv, which this file makes
# from the locks: requirements/core.txt is enough to run Eruca, requirements/dev.txt is for tests and all else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
# Stamps of what is installed: the core lock, Eruca itself, the development lock.
CORE   := $(VENV)/.core
BUILT  := $(VENV)/.built
LOCKED := $(VENV)/.locked
READY  := $(BUILT) $(LOCKED)
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check
PYTEST := $(PY) -m pytest

# Test runs start hundreds of Python processes, and each would compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

# Options of the long runs, for example `make torture ONLY=store MINUTES=5`.
ONLY    ?=
MINUTES ?=
ARGS    ?=
# How many tests `make test` runs at a time: most of them wait more than they compute.
WORKERS ?= 3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## print this list
	@echo "usage: make <target> [ONLY=name] [MINUTES=n] [ARGS='more arguments for pytest']"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- the environment ---------------------------------------------------------------------------------------------

.PHONY: setup
setup: $(BUILT) ## make .venv from the locks (every other target does what it needs of this by itself)

# An environment that is already there is brought up to date in place, never removed: someone may be using it.
$(CORE): requirements/bootstrap.txt requirements/core.txt
	@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "needs Python 3.11 or newer: make PYTHON=...")'
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	@echo "installing what Eruca needs into $(VENV)"
	@$(PIP) --require-hashes -r requirements/bootstrap.txt
	@$(PIP) --require-hashes --no-build-isolation -r requirements/core.txt
	@touch $@

# Sources that are compiled where there is a compiler: a change of one compiles them again.
COMPILED := setup.py $(shell find src/eruca -path '*/kernel/*.py' -o -path '*/kernel/*.pxd')

$(BUILT): $(CORE) pyproject.toml $(COMPILED)
	@echo "building Eruca"
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(LOCKED): requirements/dev.txt $(CORE) | $(BUILT)
	@echo "installing what tests and tools need into $(VENV): this takes minutes"
	@$(PIP) --require-hashes --no-build-isolation -r requirements/dev.txt
	@touch $@

# $(call install,tools): install with apt what is missing where we may, and otherwise name it in one line and fail.
# tests/tools.py has the list of tools.
define install
	@missing=$$($(PYTHON) tests/tools.py $(1)) || exit 1; \
	test -z "$$missing" && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null && exit 0; \
	fi; \
	echo "missing on this system, please install: $$missing" >&2; exit 1
endef

.PHONY: setup-java setup-clients setup-etcd setup-prometheus setup-chromium setup-shipping setup-system
setup-java: ## install Java 17 and Maven where we may (root and apt), otherwise name what is missing
	$(call install,java)

setup-clients: ## the same for Go, Node and npm, which build the programs around the other clients
	$(call install,go node)

setup-etcd: ## the same for etcd, which elects masters
	$(call install,etcd)

setup-prometheus: ## the same for Prometheus, which collects metrics
	$(call install,prometheus)

setup-shipping: ## the same for what builds and checks images, charts, units and pages (buildah, podman, mmdebstrap, systemd, Go, Chromium)
	$(call install,jre go etcd chromium containers systemd)

setup-chromium: ## the same for Chromium, which shows the console to its tests
	$(call install,chromium)

setup-system: ## the same for all that any suite needs from the system: Java, Maven, Go, Node, etcd, Prometheus, Chromium
	$(call install,java go node etcd prometheus chromium)

# uv is told the target, so that the lock is the same whichever machine makes it; the header names no path and no host.
COMPILE = $(BIN)/uv pip compile --quiet --python-version 3.11 --python-platform linux --generate-hashes \
          --no-emit-index-url --no-emit-find-links --no-annotate --no-header $(UPGRADE)

# The extras that the image has (deploy/image/Containerfile).
IN_IMAGE := compression console etcd filterserver otel telemetry

.PHONY: lock
lock: ## compile the locks again from pyproject.toml (UPGRADE=--upgrade for the newest versions)
	@test -x $(BIN)/uv || $(MAKE) setup
	@for name in dev core image bootstrap bench audit; do \
	    case $$name in \
	        dev) from="pyproject.toml --extra all --group dev" ;; \
	        core) from="pyproject.toml -c requirements/dev.txt" ;; \
	        image) from="pyproject.toml $(addprefix --extra ,$(IN_IMAGE)) -c requirements/dev.txt" ;; \
	        bootstrap) from="requirements/bootstrap.in -c requirements/dev.txt" ;; \
	        bench) from="requirements/bench.in" ;; \
	        audit) from="requirements/audit.in" ;; \
	    esac; \
	    cp requirements/$$name.txt $(VENV)/$$name.lock 2>/dev/null || : >$(VENV)/$$name.lock; \
	    $(COMPILE) $$from -o $(VENV)/$$name.lock || exit 1; \
	    { echo "# Locked for Python 3.11 on Linux by \`make lock\`; edit pyproject.toml instead."; \
	      grep -v '^# Locked' $(VENV)/$$name.lock; } >$(VENV)/$$name.new; \
	    cmp -s $(VENV)/$$name.new requirements/$$name.txt || cp $(VENV)/$$name.new requirements/$$name.txt; \
	    rm $(VENV)/$$name.lock $(VENV)/$$name.new; \
	done

.PHONY: clean
clean: ## remove what builds and tests left behind (not .venv)
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info
	@find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -f $(BUILT)

# --- using it ----------------------------------------------------------------------------------------------------

.PHONY: up demo docs
up: $(BUILT) ## name server and broker in one process, data in ./eruca-data (ARGS='--listen-port 10921' and the like)
	@exec $(BIN)/eruca up $(ARGS)

demo: $(READY) ## orders produced, consumed by a group, streamed by Spark into hourly revenue, with a chart (Java 17)
	$(call install,jre)
	@$(BIN)/eruca demo --spark $(ARGS)

docs: $(READY) ## the documentation site in ./site, built without the network (site/index.html; ARGS=--quiet)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)

.PHONY: screenshots
screenshots: $(READY) ## write docs/screenshots: every page of the console, light and dark, English and Chinese, wide and narrow
	$(call install,chromium fonts)
	@$(PY) -m tests.console.screenshots docs/screenshots $(ARGS)

# --- releasing ---------------------------------------------------------------------------------------------------

.PHONY: dist release-check release-store
dist: $(READY) ## source archive, plain wheel and compiled wheels into ./dist (PYTHONS='python3.12 ...', by default all found)
	@$(PY) -m tools.dist $(addprefix --python ,$(PYTHONS))

release-check: $(READY) ## carry out and verify the release checklist (docs/RELEASING.md); ONLY=step, PUBLISH=1
	@$(PY) -m tools.release $(addprefix --only ,$(ONLY)) $(if $(PUBLISH),--publish)

release-store: $(READY) ## keep a store written by this version in tests/golden/data/releases, for the versions after it
	@$(PY) -m tools.releasestore

# --- quality -----------------------------------------------------------------------------------------------------

.PHONY: generate
generate: $(READY) ## write what is made from something else: plain clients, CONFIG, API_NAMES, METRICS, dashboards, charts
	@$(PY) -m tools.plainclients
	@$(PY) -m eruca._cli.configdoc docs/CONFIG.md
	@$(PY) -m eruca._cli.namesdoc docs/API_NAMES.md
	@$(PY) -m eruca._cli.metricsdoc docs/METRICS.md
	@$(PY) -m tools.dashboards
	@$(PY) -m tools.charts

.PHONY: lint
lint: $(READY) ## ruff (rules and format), mypy --strict, direction of imports, plain clients up to date, tidiness
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(PY) -m tools.plainclients --check
	@$(PYTEST) -q tests/test_tidy.py

.PHONY: test
# The seeds one randomised test takes here; `make torture` takes many more.
test: export ERUCA_SEEDS ?= 100
test: $(READY) ## a slice of every suite; tests whose tools are missing are left out and counted (in CI that is an error)
	@$(MAKE) setup-system || test -z "$$CI"
	@$(PYTEST) -q -m "not whole" -n $(WORKERS) $(ARGS)
	@ERUCA_PLAIN=1 $(PYTEST) -q -m "not whole" -n $(WORKERS) $(PLAIN_SLICE)

# Suites that touch a kernel, run once more without the compiled ones; `make test` takes those that look closest at them.
PLAIN_SLICE := tests/unit/test_kernels.py tests/unit/test_readers_agree.py \
               $(addprefix tests/unit/wire/,kernel $(addprefix test_,record.py frame.py digest.py batch.py)) \
               $(addprefix tests/unit/store/,kernel reading test_append_encoded.py test_messagestore.py test_replay_log.py \
                 queues/test_dispatch.py queues/test_index.py lineage/test_replicalog.py log/test_scan.py) \
               $(addprefix tests/unit/spark/,kernel sink/test_encoding.py) \
               tests/unit/broker/sending tests/integration/broker/test_send.py
PLAIN_SUITES := tests/unit/test_kernels.py tests/unit/test_readers_agree.py $(addprefix tests/unit/,wire store spark broker) \
                tests/integration/broker tests/golden

.PHONY: test-plain
test-plain: export ERUCA_PLAIN = 1
test-plain: $(READY) ## the suites that touch a kernel, with kernels that are not compiled
	@$(PYTEST) -q -n $(WORKERS) $(PLAIN_SUITES) $(ARGS)

# One rule for every suite: `make test-X` runs tests/X whole, and says so when there is no such suite yet.
SUITES := unit integration golden interop grpc clients delivery replication spark admin console security monitoring shipping

.PHONY: $(addprefix test-,$(SUITES))
test-unit: ## tests/unit: one room at a time, and the properties that hold for all inputs
test-integration: ## tests/integration: brokers and name servers that are started, a room at a time
test-golden: ## tests/golden: bytes captured from the Java broker and client
test-interop: ## tests/interop: Java, Go and Node clients, stores; ours and Java's side by side (Java 17, Maven, Go, Node)
test-grpc: ## tests/grpc: the official clients for gRPC on the official proxy (Java 17, Maven, Go, Node; Rust if it is there)
test-clients: ## tests/clients: our clients against our broker and Java's, beside Java members (Java 17, Maven)
test-delivery: ## tests/delivery: what was acknowledged is delivered
test-replication: ## tests/replication: master and slave, ours and Java's, kills, network faults, etcd (Java 17, Maven, etcd)
test-spark: ## tests/spark: the data sources and the jobs
test-admin: ## tests/admin: every method of the admin API, async and plain, on our broker and Java's (Java 17, Maven)
test-console: ## tests/console: every page of the console in a browser, on our broker and Java's (Chromium, Java 17, Maven)
test-security: ## tests/security: hostile peers, rights, defaults
test-monitoring: ## tests/monitoring: a real Prometheus, every query of the dashboards and alert rules (Prometheus, etcd)
test-shipping: ## tests/shipping: the wheels in empty environments, the image, the chart, the units, the site, the tutorial

test-interop test-grpc: setup-java setup-clients
test-clients test-delivery test-spark test-replication test-admin test-console: setup-java
test-replication test-monitoring: setup-etcd
test-monitoring: setup-prometheus
test-shipping: setup-shipping
test-console: setup-chromium
$(addprefix test-,$(SUITES)): test-%: $(READY)
	@test -n "$$(find tests/$* -name 'test_*.py' 2>/dev/null | head -n 1)" \
	    || { echo "make $@: there is no suite tests/$* yet" >&2; exit 1; }
	@$(PYTEST) tests/$* $(if $(filter unit,$*),$(wildcard tests/property)) $(ARGS)

.PHONY: torture
torture: $(READY) ## the long randomised runs; ONLY=name picks one, MINUTES=n bounds it
	@test -f tests/torture/__main__.py || { echo "make $@: there is no tests/torture yet" >&2; exit 1; }
	@$(PY) -m tests.torture $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench
bench: $(READY) ## the benchmarks beside plain loops or peers; ONLY=name picks one, BEFORE=dir compares, PLAIN=1 compiles nothing
	@test -f bench/__main__.py || { echo "make $@: there is no bench yet" >&2; exit 1; }
	@$(if $(PLAIN),ERUCA_PLAIN=1 )$(PY) -m bench $(if $(ONLY),--only $(ONLY)) $(if $(BEFORE),--before $(BEFORE))

# pip-audit has an environment of its own: it needs other versions of some libraries than we do. It ends with 1 both for a
# known weakness and when nothing answered, and only what it says tells which; --strict makes it count what it skipped.
AUDIT := $(VENV)/audit

$(AUDIT)/.installed: requirements/audit.txt
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/audit.txt
	@touch $@

.PHONY: audit
audit: $(AUDIT)/.installed ## look for known weaknesses in the locked requirements; fails when no advisory database answers
	@for lock in core dev image bench bootstrap audit; do \
	    $(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
	        -r requirements/$$lock.txt >$(AUDIT)/said 2>&1 && { echo "requirements/$$lock.txt: no known weakness"; continue; }; \
	    if grep -q '^Found .* known vulnerabilit' $(AUDIT)/said; then cat $(AUDIT)/said; found=1; continue; fi; \
	    tail -n 1 $(AUDIT)/said >&2; \
	    echo "make $@: requirements/$$lock.txt was not checked: no advisory database could be reached." >&2; \
	    echo "Run it where the Python package index answers; a mirror of packages has no advisories." >&2; exit 2; \
	done; exit $${found:-0}
