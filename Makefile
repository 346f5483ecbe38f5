# `make run` on a fresh machine: a real vLLM and the gateway in front of it. `make` alone lists the rest.
# Everything that is installed goes into .venv (the gateway) and .engine-venv (vLLM); `make clean` takes it away.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# The first Python of a fitting version; another one: make PYTHON=/path/to/python3.12 …
FITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(eval PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c '$(FITS)' 2>/dev/null && echo $$p && break; done))$(PYTHON)
BIN := .venv/bin
ARGS ?=
PYTEST_ARGS ?=

.PHONY: help install dev engine run serve test test-containers check load bench soak format docs constraints clean

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

install: .venv/.gateway ## the gateway's environment alone, under a minute
	@echo "Ready: .venv/bin/sluice --help"

run: .venv/.gateway ## a real vLLM and the gateway, and a request to try; ARGS="--model …" goes to `sluice up`
	@$(BIN)/python -c "$$PORT_IS_FREE" "$${SLUICE_SERVER__PORT:-8080}"
	@$(BIN)/python -m gateway.engine.install
	@exec $(BIN)/sluice up $(ARGS)

serve: .venv/.gateway ## the gateway alone, in front of engines that run already; ARGS="-c sluice.yaml"
	@exec $(BIN)/sluice serve $(ARGS)

test: .venv/.dev engine check ## the whole suite, the real engine included; PYTEST_ARGS="-k …" picks
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-containers: .venv/.dev engine ## real containers by podman, as root: images, the composed whole, the chart's pods
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m containers tests/deploy $(PYTEST_ARGS)

check: .venv/.dev ## lint, types, import contracts, dead code, dependencies
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "not formatted: make format"; exit 1; }
	@$(BIN)/mypy --no-error-summary gateway plugins tests
	@$(BIN)/lint-imports --no-logo > .venv/imports.log || { cat .venv/imports.log; exit 1; }
	@$(BIN)/vulture
	@$(BIN)/deptry . 2> .venv/deptry.log || { cat .venv/deptry.log; exit 1; }
	@echo "make check: lint, format, types, import contracts, dead code and dependencies are fine"

load: .venv/.dev ## load on the gateway with Locust; ARGS="--headless -u 50 -t 60s Chat" (loadtests/README.md)
	@$(BIN)/locust -f loadtests/locustfile.py -H http://127.0.0.1:$${SLUICE_SERVER__PORT:-8080} $(ARGS)

bench: .venv/.gateway ## compare gateways before one mock engine; ARGS="--rounds 4 --scenarios whole,stream"
	@loadtests/bench/setup.sh
	@mkdir -p build && loadtests/bench/compare.py --checkout . --out build/bench.json $(ARGS)
	@loadtests/bench/.peers/bin/python loadtests/bench/publish.py build/bench.json docs

soak: .venv/.dev ## mixed load for 20 minutes, and what leaks; ARGS="--minutes 5"
	@$(BIN)/python loadtests/soak.py $(ARGS)

format: .venv/.dev ## lay the code out and mend what can be mended by machine
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

engine: .venv/.gateway ## vLLM's environment
	@$(BIN)/python -m gateway.engine.install

dev: .venv/.dev ## the gateway's environment with the tools for working on it

docs: .venv/.dev ## write the generated parts of the documentation anew
	@$(BIN)/python docs/generate.py

constraints: .venv/.dev ## write constraints.txt anew with today's versions
	@$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report .venv/report.json -e '.[dev]'
	@$(BIN)/python -c "$$PINS" < .venv/report.json > constraints.txt

clean: ## remove the environments, caches and built models
	rm -rf .venv .engine-venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist

# A stamp is written last, so an install that broke off is taken up again and one that is done is not looked at twice.
.venv/.gateway: pyproject.toml constraints.txt
	$(call environment,.)
	@touch $@

.venv/.dev: pyproject.toml constraints.txt
	$(call environment,.[dev])
	@touch .venv/.gateway $@

# One clear line for each thing that goes wrong on a fresh machine; the whole story is in .venv/install.log.
define environment
@test -n "$(PYTHON)" && $(PYTHON) -c '$(FITS)' 2>/dev/null || { \
  echo "Sluice needs Python 3.11, 3.12 or 3.13 with venv, and found $$($(or $(PYTHON),python3) --version 2>/dev/null || echo none)." \
    "Install one (on Debian with python3-venv), or name one: make PYTHON=/path/to/python3.12"; exit 2; }
@free=$$(df -Pk . | awk 'NR == 2 { print int($$4 / 1024) }'); test "$$free" -ge 600 || { \
  echo "Not enough disk: the gateway's environment takes 600 MB, and $$free MB are free in $$(pwd)."; exit 2; }
@$(BIN)/python -c '$(FITS)' 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
  echo "Making .venv with $$($(PYTHON) --version)"; \
  $(PYTHON) -m venv --clear .venv || { echo "Python could not make .venv (its reason is above)."; exit 2; }; }
@echo "Installing the gateway into .venv"
@PIP_RETRIES=1 $(BIN)/python -m pip install -c constraints.txt -e '$(1)' > .venv/install.log 2>&1 || { \
  if grep -q 'No space left' .venv/install.log; then \
    echo "Not enough disk: the install filled it. Free some (600 MB are needed) and run make again."; \
  elif grep -qE 'NewConnectionError|ConnectTimeout|ReadTimeout|NameResolutionError|ProxyError|SSLError' .venv/install.log; then \
    echo "No network: pip cannot reach its package index. Mend that (or pip's index settings) and run make again."; \
  else tail -n 5 .venv/install.log; echo "The install failed; all of it is in .venv/install.log."; fi; exit 2; }
endef

export PORT_IS_FREE
define PORT_IS_FREE
import socket, sys
port = sys.argv[1]
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        s.bind(("127.0.0.1", int(port)))
    except (OSError, ValueError, OverflowError) as fault:
        sys.exit(f"Port {port} cannot be used ({fault}). Another one: SLUICE_SERVER__PORT=8081 make run")
endef

export PINS
define PINS
import json, sys
pins = (entry["metadata"] for entry in json.load(sys.stdin)["install"])
print("# The versions that were tested together; `make constraints` writes this file anew.")
print(*sorted((f"{p['name']}=={p['version']}" for p in pins if p["name"] != "sluice-gateway"), key=str.lower), sep="\n")
endef
