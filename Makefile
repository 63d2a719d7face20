# `make` alone shows this file's targets and variables.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# What `make doctor` looks at.
CONFIG ?= envoy.yaml
# Seconds of fuzzing for each target.
FUZZ_SECONDS ?= 60
# How long `make test` fuzzes. The same inputs each time, so that only a change of ours can break it.
FUZZ_IN_TEST ?= --iterations 3000 --seed 1
# What is built in only by feature.
VOCABULARIES := llama3,qwen2,deepseek_v3,mistral
# What of it `make build` builds in.
FEATURES ?=
# What `make soak` sends.
export REQUESTS ?= 10000
export CONCURRENCY ?= 16
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
# Where envoy.yaml, the demo and the tests look for what was built, whatever this machine's cargo is set to.
export CARGO_TARGET_DIR := $(CURDIR)/target

# Every target, two at a time.
define fuzz
cargo build -q -p tokengate-fuzz --profile fuzz
target/fuzz/tokengate-fuzz --list | xargs -P 2 -I{} target/fuzz/tokengate-fuzz --target {} $(1)
endef

.PHONY: help demo build doctor test lint unit fuzz e2e soak proof-tokens proof-vocabularies bench-tokens bench-service clean

help: ## Show this
	@echo 'Targets:'
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s%s\n", $$1, $$2}'
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
	@echo
	@echo 'Variables of make fuzz and make soak:'
	@echo '  FUZZ_SECONDS=$(FUZZ_SECONDS)         of fuzzing for each target'
	@echo '  REQUESTS=$(REQUESTS)          to send, by CONCURRENCY=$(CONCURRENCY) callers; SEED= repeats a run'
	@echo
	@echo 'Variable of make build:'
	@echo '  FEATURES=               more vocabularies: $(VOCABULARIES)'
	@echo
	@echo 'Variable of make doctor:'
	@echo '  CONFIG=$(CONFIG)       the Envoy configuration to check'

demo: ## Install what is missing, start everything, print two curl commands; Ctrl-C stops it
	@scripts/setup demo $(if $(and $(filter redis,$(STORE)),$(if $(REDIS_URL),,yes)),redis)
	@[ -e target/quick/tokengate-demo-upstream ] || echo 'building the filter, the quota service and the demo upstream: about two minutes the first time, on two cores'
	@scripts/build-wasm --quick
	@cargo build -q --profile quick -p tokengate-ratelimit -p tokengate-demo-upstream --bins
	@exec $(PYTHON) scripts/demo

build: ## Build the filter (wasm, release) and the quota service
	@scripts/setup demo
	scripts/build-wasm $(if $(FEATURES),--features $(FEATURES))
	cargo build -q --release -p tokengate-ratelimit
	@ls -l target/wasm32-wasip1/release/tokengate.wasm target/release/tokengate-ratelimit

# The demo's own PROVIDER_KEY is not what Envoy will have.
doctor: ## Check an Envoy configuration for all that tokengate needs
	@scripts/setup doctor
	@$(if $(filter file,$(origin PROVIDER_KEY)),env -u PROVIDER_KEY )$(PYTHON) scripts/doctor $(CONFIG)

test: ## Install what is missing and run every test
	@scripts/setup test
	@$(MAKE) lint
	@$(MAKE) unit
	@$(MAKE) e2e

# Of the benchmarks' own packages what can break when something here changes; the other counters cannot.
lint: ## Formatting, and clippy with warnings denied
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets -- -D warnings
	cargo clippy -q -p tokengate --all-targets --features $(VOCABULARIES) -- -D warnings
	cargo clippy -q --manifest-path bench/service/Cargo.toml -- -D warnings
	cargo clippy -q --manifest-path bench/tokens/Cargo.toml --lib --features tokengate -- -D warnings
	scripts/build-wasm --check

unit: ## Unit tests, the stores' tests on memory and a real Redis, and a little fuzzing
	cargo test -q --workspace
	cargo test -q -p tokengate --lib --features $(VOCABULARIES) -- tokenizer:: models::
	$(call fuzz,$(FUZZ_IN_TEST))

fuzz: ## Feed requests, streams, answers and configurations with mutations, FUZZ_SECONDS for each target
	$(call fuzz,--seconds $(FUZZ_SECONDS))

e2e: ## End-to-end tests on a real Envoy, with the wasm that ships, for both ways of holding a request
	scripts/build-wasm --trap
	scripts/build-wasm --vocabularies
	scripts/build-wasm
	cargo build -q -p tokengate-ratelimit -p tokengate-demo-upstream --bins
	cargo build -q -p tokengate --examples --features $(VOCABULARIES)
	$(PYTHON) -m pytest tests -q -n 2
	TOKENGATE_TEST_HOLD_AT=body $(PYTHON) -m pytest tests -q -n 2 --ignore tests/test_demo.py --ignore tests/test_doctor.py --ignore tests/test_setup.py

soak: ## REQUESTS mixed requests of CONCURRENCY callers through one Envoy; then honest callers beside attackers
	@scripts/setup test
	scripts/build-wasm
	cargo build -q -p tokengate-ratelimit --bins
	cargo build -q -p tokengate --examples --features $(VOCABULARIES)
	$(PYTHON) tests/soak.py
	$(PYTHON) tests/soak_attacked.py

proof-tokens: ## Compare 200 MB of token counts with tiktoken-rs (MEGABYTES=, SEED=)
	cargo run -q --release --example proof_tokens -- $(or $(MEGABYTES),200) $(or $(SEED),1)

proof-vocabularies: ## The same for a build with llama3, qwen2, deepseek_v3 and mistral, theirs with tiktoken (MEGABYTES=, SEED=)
	cargo test -q -p tokengate --lib --features $(VOCABULARIES) -- tokenizer:: models::
	cargo run -q --release --example proof_tokens --features $(VOCABULARIES) -- $(or $(MEGABYTES),300) $(or $(SEED),1)

bench-tokens: ## Measure the token counter beside three others, in V8 and natively
	bench/tokens/run

bench-service: ## Measure the quota service beside the bare scripts on a Redis of its own, 5 minutes (QUICK=1; UPDATE=1: into docs)
	bench/service/run $(if $(QUICK),--quick) $(if $(UPDATE),--update $(CURDIR)/docs/service-speed.md)

clean: ## Remove everything that was built or installed into the repository
	rm -rf target .venv
