# Every target does its own setup; `make help` lists them. Variables, as in `make eval CKPT=... DATA=...`:
#   SOURCE        recorded episodes: a folder of shards      FORMAT     their format: docs/formats.md
#   SPLIT         file of train and test episodes; default: SOURCE/split.json, if it exists
#   DATA          prepared data                              OUT        folder of the result
#   RECIPE        name or file of a recipe                   SET        finetune: "optim.lr=3e-4 train.epochs=2"
#   GPUS          finetune: processes, one per GPU           RESUME     finetune: 1 resumes the run in OUT
#   CKPT          checkpoint folder                          AGENT      URL or checkpoint folder
#   DEVICE        sim or adb                                 GOAL       the agent's goal
#   MAX_EPISODES  data, eval: maximum number of episodes     MAX_STEPS  run, live: maximum number of steps
#   NUM_GOALS     live: number of goals                      SUITE      live: sim or miniwob
#   FREE_RUNNING  eval: 1 keeps the predicted history        PROTOCOL   eval: also the rules of autoui, aitz, ...
#   PORT, SEED, INDEX
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

PY := .venv/bin/python
UIVLM := $(PY) -m uivlm

RECIPE ?= tiny
DATA ?= runs/data
CKPT ?= runs/$(RECIPE)
SOURCE ?= runs/shards
SPLIT ?=
FORMAT ?= aitw
OUT ?=
GOAL ?=
DEVICE ?= sim
AGENT ?= $(CKPT)
PORT ?= 8000
MAX_EPISODES ?=
MAX_STEPS ?=
NUM_GOALS ?=
SUITE ?= sim
FREE_RUNNING ?=
PROTOCOL ?=
SET ?=
GPUS ?=
RESUME ?=
SEED ?= 0
INDEX ?= 0

# Setup only. uv does not read pip's settings: pip's find-links, from the environment or pip's file, are passed to it.
PYTHON ?= $(shell for python in python3 python3.12 python3.11 python3.13 python; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
EXTRAS := model,convert,publish,dev$(shell command -v nvidia-smi >/dev/null 2>&1 && echo ,gpu)
# For the tests: Qwen-VL's vocabulary and Qwen-Agent's client. The extra `dev` has the dependencies that it needs.
VOCABULARY := qwen-agent==0.0.34
# MiniWoB++'s pages. Nothing else of the package is used, so its dependencies (a browser driver) are left out.
PAGES := miniwob==1.1.0

# A default that does not exist yet is made first; a DATA, CKPT or SOURCE that you name must exist.
made = $(if $(filter $(1),$(2)),$(3))
NEEDS_SOURCE = $(call made,runs/shards,$(SOURCE),runs/shards/split.json)
NEEDS_DATA = $(call made,runs/data,$(DATA),runs/data/meta.json)
NEEDS_CKPT = $(call made,runs/tiny,$(CKPT),runs/tiny/card.json)
NEEDS_AGENT = $(call made,runs/tiny,$(AGENT),runs/tiny/card.json)

# The split file next to the shards, if it exists; SPLIT names another.
SPLIT_OPTION = $(if $(SPLIT),--split "$(SPLIT)",$$(test -f "$(SOURCE)/split.json" && echo "--split $(SOURCE)/split.json" || true))

# finetune: each word of SET is an option of its own.
SETTINGS = --set "data.path=$(DATA)" --set train.seed=$(SEED) $(foreach setting,$(SET),--set '$(setting)')
TORCHRUN = $(PY) -m torch.distributed.run --standalone --nproc-per-node $(GPUS) -m uivlm

# One process more than cores, because some tests wait; at most four, because each holds torch and models in memory.
PYTEST = $(PY) -m pytest -q --dist worksteal -n $$($(PY) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')

.PHONY: help setup lint test test-quick demo data finetune eval serve run console show bench bench-faults bench-gpu live pretrain clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: .venv/.ready ## install everything that the other targets need into .venv

.venv/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer found: install one, or name it: make PYTHON=..." >&2; exit 1; }
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		missing=""; \
		command -v mksh >/dev/null || missing="mksh"; \
		command -v chromium-headless-shell chromium google-chrome >/dev/null || missing="$$missing chromium-headless-shell"; \
		"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
		if [ -n "$$missing" ]; then \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq >/dev/null 2>&1 || true; \
			for package in $$missing; do \
				apt-get install -qq -y --no-install-recommends $$package >/dev/null 2>&1 \
					|| echo "not installed: $$package (the tests that need it are skipped)"; \
			done; \
		fi; \
	fi
	@echo "installing .[$(EXTRAS)] into .venv: a minute or two"
	@set -e; links="$${PIP_FIND_LINKS:-$$("$(PYTHON)" -m pip config get global.find-links 2>/dev/null || true)}"; \
	if command -v uv >/dev/null; then \
		test -x $(PY) || uv venv --quiet --python "$(PYTHON)" .venv; \
		export UV_FIND_LINKS="$${UV_FIND_LINKS:-$$(echo $$links | tr ' ' ',')}"; \
		test -n "$$UV_FIND_LINKS" || unset UV_FIND_LINKS; \
		uv pip install --quiet --python $(PY) -e ".[$(EXTRAS)]"; \
		uv pip install --quiet --python $(PY) --no-deps $(VOCABULARY) $(PAGES); \
	else \
		test -x $(PY) || "$(PYTHON)" -m venv .venv; \
		$(PY) -m pip install -qq --disable-pip-version-check -e ".[$(EXTRAS)]"; \
		$(PY) -m pip install -qq --disable-pip-version-check --no-deps $(VOCABULARY) $(PAGES); \
	fi
	@touch $@

lint: setup ## ruff and mypy
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy uivlm data_prep recipes

test: setup ## all tests, on a CPU
	$(PYTEST)

test-quick: setup ## the tests that are not slow, in about two minutes on two cores
	$(PYTEST) -m "not slow and not exhaustive"

demo: setup ## the whole path on simulated episodes: data, training, evaluation, an agent on a phone
	$(if $(OUT),,rm -rf build/demo)
	$(UIVLM) demo --seed $(SEED) $(if $(OUT),--out "$(OUT)")

data: setup $(NEEDS_SOURCE) ## prepared data in OUT from the shards in SOURCE
	$(PY) -m data_prep "$(SOURCE)" "$(or $(OUT),$(DATA))" --format $(FORMAT) $(SPLIT_OPTION) \
		$(if $(MAX_EPISODES),--max-episodes $(MAX_EPISODES))

finetune: setup $(NEEDS_DATA) ## a checkpoint in OUT by RECIPE on DATA
	$(if $(GPUS),$(TORCHRUN),$(UIVLM)) train "$(RECIPE)" $(SETTINGS) $(if $(RESUME),--resume) \
		--out "$(or $(OUT),runs/$(notdir $(basename $(RECIPE))))"

eval: setup $(NEEDS_DATA) $(NEEDS_CKPT) ## partial match of CKPT on DATA
	$(UIVLM) eval "$(CKPT)" "$(DATA)" $(if $(MAX_EPISODES),--max-episodes $(MAX_EPISODES)) \
		$(if $(FREE_RUNNING),--free-running) $(if $(PROTOCOL),--protocol $(PROTOCOL) --as-released) \
		$(if $(OUT),--out "$(OUT)")

live: setup $(NEEDS_CKPT) ## online success of CKPT on NUM_GOALS unseen goals of SUITE (sim or miniwob)
	$(UIVLM) eval-online "$(CKPT)" --suite $(SUITE) --seed $(SEED) $(if $(NUM_GOALS),--num-goals $(NUM_GOALS)) \
		$(if $(MAX_STEPS),--max-steps $(MAX_STEPS)) $(if $(OUT),--trace-dir "$(OUT)")

serve: setup $(NEEDS_CKPT) ## CKPT behind http://127.0.0.1:PORT
	$(UIVLM) serve "$(CKPT)" --port $(PORT)

run: setup $(NEEDS_AGENT) ## AGENT (a URL or a checkpoint) pursues GOAL on DEVICE (sim or adb)
	@test -n "$(GOAL)" || { echo 'name a goal: make run GOAL="Open the Clock app"' >&2; exit 2; }
	$(UIVLM) run "$(GOAL)" --agent "$(AGENT)" --device $(DEVICE) $(if $(filter sim,$(DEVICE)),--sim-seed $(SEED)) \
		$(if $(MAX_STEPS),--max-steps $(MAX_STEPS)) $(if $(OUT),--trace-dir "$(OUT)")

console: setup $(NEEDS_AGENT) ## a web page to watch and steer AGENT on DEVICE
	$(UIVLM) console --agent "$(AGENT)" --device $(DEVICE)

show: setup $(NEEDS_DATA) ## episode INDEX of DATA: its sentence, trained text in green; with OUT, an image
	$(UIVLM) show "$(DATA)" $(INDEX) $(if $(OUT),--out "$(OUT)")

bench: setup ## throughput and latency: the programs in bench/
	set -e; for file in bench/*.py; do echo "$$file"; $(PY) "$$file"; done

bench-faults: setup ## attacks and faults on loopback, in ten minutes at most: a table; an error if a promise breaks
	$(PY) bench/faults/all.py

bench-gpu: setup ## full-size models with random weights on this machine's GPU: a report in OUT, in an hour at most
	$(PY) bench/gpu/all.py "$(or $(OUT),runs/bench-gpu)"

pretrain: setup ## the tiny base from random weights, into OUT (hours)
	$(UIVLM) pretrain "$(or $(OUT),runs/base)" --seed $(SEED)

clean: ## remove what the other targets made, except .venv
	rm -rf build runs .pytest_cache .mypy_cache .ruff_cache

runs/shards/split.json: | setup
	$(UIVLM) simulate runs/shards --seed $(SEED)

runs/data/meta.json: | setup $(NEEDS_SOURCE)
	$(PY) -m data_prep "$(SOURCE)" runs/data $(SPLIT_OPTION)

runs/tiny/card.json: | setup $(NEEDS_DATA)
	$(UIVLM) train tiny --set "data.path=$(DATA)" --set train.seed=$(SEED) --out runs/tiny
