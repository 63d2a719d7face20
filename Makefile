# `make` alone shows this file's targets and variables.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What `make demo` listens to, stores in and talks to; see `make help`.
export PORT ?= 10000
export ADMIN_PORT ?= 9901
export QUOTA_PORT ?= 8090
export STORE ?= memory
export REDIS_URL ?=
export UPSTREAM ?=
export POLICY ?= policy.yaml
export PROVIDER_KEY ?= demo
export ENVOY ?=

PYTHON := .venv/bin/python

.PHONY: help demo build test lint unit e2e proof-tokens bench-tokens clean

help: ## Show this
	@echo 'Targets:'
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'
	@echo
	@echo 'Variables of make demo:'
	@echo '  PORT=$(PORT)             the gateway, http://127.0.0.1:PORT/v1/chat/completions'
	@echo '  ADMIN_PORT=$(ADMIN_PORT)        Envoy'"'"'s admin pages'
	@echo '  QUOTA_PORT=$(QUOTA_PORT)        the quota service; its admin port is the next one'
	@echo '  STORE=$(STORE)          memory | redis (starts one, unless REDIS_URL names it)'
	@echo '  REDIS_URL=              redis://[user:password@]host:port[/db] or rediss://…'
	@echo '  UPSTREAM=               host:port or https://host[:port] of a real provider; empty: the demo upstream'
	@echo '  POLICY=$(POLICY)     the policy file'
	@echo '  PROVIDER_KEY=$(PROVIDER_KEY)       the API key that upstream gets'
	@echo '  ENVOY=                  path of an Envoy 1.35 or newer; empty: one is found or installed'

demo: ## Install what is missing, start everything, print two curl commands; Ctrl-C stops it
	@scripts/setup demo $(if $(and $(filter redis,$(STORE)),$(if $(REDIS_URL),,yes)),redis)
	@scripts/build-wasm
	@cargo build -q -p tokengate-ratelimit -p tokengate-demo-upstream
	@exec $(PYTHON) scripts/demo

build: ## Build the filter (wasm, release) and the quota service
	@scripts/setup demo
	scripts/build-wasm
	cargo build -q --release -p tokengate-ratelimit
	@ls -l target/wasm32-wasip1/release/tokengate.wasm target/release/tokengate-ratelimit

test: ## Install what is missing and run every test
	@scripts/setup test
	@$(MAKE) lint
	@$(MAKE) unit
	@$(MAKE) e2e

lint: ## Formatting, and clippy with warnings denied
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets -- -D warnings
	scripts/build-wasm --check

unit: ## Unit tests, and the stores' tests on memory and a real Redis
	cargo test -q --workspace

e2e: ## End-to-end tests on a real Envoy, with the wasm that ships
	scripts/build-wasm
	cargo build -q -p tokengate-ratelimit -p tokengate-demo-upstream -p tokengate --bins --examples
	$(PYTHON) -m pytest tests -q -n 2

proof-tokens: ## Compare 200 MB of token counts with tiktoken-rs (MEGABYTES=, SEED=)
	cargo run -q --release --example proof_tokens -- $(or $(MEGABYTES),200) $(or $(SEED),1)

bench-tokens: ## Measure the token counter beside three others, in V8 and natively
	bench/tokens/run

clean: ## Remove everything that was built or installed into the repository
	rm -rf target .venv
