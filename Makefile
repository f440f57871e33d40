# Every target does its own set-up; `make help` lists them. Variables (make eval CKPT=... DATA=...):
#   SOURCE  recorded episodes: a folder of shards      DATA    prepared data         RECIPE  a recipe's name or file
#   CKPT    a checkpoint folder                        AGENT   a URL or a checkpoint  DEVICE  sim or adb
#   OUT     where the result goes                      GOAL    what to do             PORT, SEED, INDEX
#   FORMAT  how they were recorded: aitw, seeclick, aitz, androidcontrol, showui, jsonl or trace
#   SPLIT   a list of episodes for train and test; default: SOURCE/split.json, if it is there
#   GPUS    finetune: so many processes, a GPU each      RESUME  finetune: 1 goes on with the unfinished run of OUT
#   LIMIT   data, eval: most episodes; run: most steps; live: goals
#   FREE    eval: 1 lets the agent keep its own past     PROTOCOL  eval: by the rules of autoui, seeclick, ..., too
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
LIMIT ?=
SUITE ?= sim
FREE ?=
PROTOCOL ?=
GPUS ?=
RESUME ?=
SEED ?= 0
INDEX ?= 0

# Set-up only. uv does not read pip's settings: pip's find-links, from the environment or pip's file, are told to it.
PYTHON ?= $(shell for one in python3 python3.12 python3.11 python3.13 python; do \
	"$$one" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$one" && break; done)
EXTRAS := model,parts,dev$(shell command -v nvidia-smi >/dev/null 2>&1 && echo ,gpu)
# For the tests: Qwen-VL's whole vocabulary, and Qwen-Agent's client. What it needs of its own dependencies, `dev` names.
VOCABULARY := qwen-agent==0.0.34
# MiniWoB++'s pages. Of the package nothing else is used, so what it needs (a browser driver) is left out.
PAGES := miniwob==1.1.0

# What a default needs and is not there yet is made first; a DATA, CKPT or SOURCE of one's own must be there.
made = $(if $(filter $(1),$(2)),$(3))
NEEDS_SOURCE = $(call made,runs/shards,$(SOURCE),runs/shards/split.json)
NEEDS_DATA = $(call made,runs/data,$(DATA),runs/data/meta.json)
NEEDS_CKPT = $(call made,runs/tiny,$(CKPT),runs/tiny/card.json)
NEEDS_AGENT = $(call made,runs/tiny,$(AGENT),runs/tiny/card.json)

# The split list that lies beside the shards, where there is one; SPLIT names another.
SPLIT_OPTION = $(if $(SPLIT),--split "$(SPLIT)",$$(test -f "$(SOURCE)/split.json" && echo "--split $(SOURCE)/split.json" || true))

.PHONY: help setup lint test demo data finetune eval serve run console show bench live pretrain clean

help: ## this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: .venv/.ready ## .venv with everything that the other targets need

.venv/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer here: install one, or name it: make PYTHON=..." >&2; exit 1; }
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		missing=""; \
		command -v mksh >/dev/null || missing="mksh"; \
		command -v chromium-headless-shell chromium google-chrome >/dev/null || missing="$$missing chromium-headless-shell"; \
		"$(PYTHON)" -c 'import ensurepip' 2>/dev/null || missing="$$missing python3-venv"; \
		if [ -n "$$missing" ]; then \
			export DEBIAN_FRONTEND=noninteractive; \
			apt-get update -qq >/dev/null 2>&1 || true; \
			for one in $$missing; do \
				apt-get install -qq -y --no-install-recommends $$one >/dev/null 2>&1 \
					|| echo "not installed: $$one (the tests that need it are skipped)"; \
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

test: setup ## pytest on a CPU, about ten minutes on two cores
	$(PY) -m pytest -q -n auto --maxprocesses 4 --dist worksteal

demo: setup ## the whole path on simulated episodes: data, training, evaluation, an agent on a phone
	$(if $(OUT),,rm -rf build/demo)
	$(UIVLM) demo --seed $(SEED) $(if $(OUT),--out "$(OUT)")

data: setup $(NEEDS_SOURCE) ## prepared data in OUT from the shards in SOURCE
	$(PY) -m data_prep "$(SOURCE)" "$(or $(OUT),$(DATA))" --format $(FORMAT) $(SPLIT_OPTION) $(if $(LIMIT),--limit $(LIMIT))

finetune: setup $(NEEDS_DATA) ## a checkpoint in OUT by RECIPE on DATA
	$(if $(GPUS),$(PY) -m torch.distributed.run --standalone --nproc-per-node $(GPUS) -m uivlm,$(UIVLM)) train "$(RECIPE)" $(if $(RESUME),--resume) --set "data.folder=$(DATA)" --set train.seed=$(SEED) --out "$(or $(OUT),runs/$(notdir $(basename $(RECIPE))))"

eval: setup $(NEEDS_DATA) $(NEEDS_CKPT) ## partial match of CKPT on DATA
	$(UIVLM) eval "$(CKPT)" "$(DATA)" $(if $(LIMIT),--limit $(LIMIT)) $(if $(FREE),--free) $(if $(PROTOCOL),--protocol $(PROTOCOL) --with-defects) $(if $(OUT),--out "$(OUT)")

live: setup $(NEEDS_CKPT) ## success of CKPT on LIMIT unseen goals: SUITE=sim, the simulated phone, or miniwob
	$(UIVLM) live "$(CKPT)" --suite $(SUITE) --seed $(SEED) $(if $(LIMIT),--goals $(LIMIT)) $(if $(OUT),--trace "$(OUT)")

serve: setup $(NEEDS_CKPT) ## CKPT behind http://127.0.0.1:PORT
	$(UIVLM) serve "$(CKPT)" --port $(PORT)

run: setup $(NEEDS_AGENT) ## AGENT (a URL or a checkpoint) pursues GOAL on DEVICE (sim or adb)
	@test -n "$(GOAL)" || { echo 'say what to do: make run GOAL="open the clock"' >&2; exit 2; }
	$(UIVLM) run "$(GOAL)" --agent "$(AGENT)" --device $(DEVICE) --seed $(SEED) $(if $(LIMIT),--limit $(LIMIT)) $(if $(OUT),--trace "$(OUT)")

console: setup $(NEEDS_AGENT) ## a web page to watch and steer AGENT on DEVICE
	$(UIVLM) console --agent "$(AGENT)" --device $(DEVICE)

show: setup $(NEEDS_DATA) ## episode INDEX of DATA: its screens with the actions drawn, its sentence, trained words green
	$(UIVLM) show "$(DATA)" $(INDEX) $(if $(OUT),--out "$(OUT)")

bench: setup ## throughput and latency programs in bench/
	set -e; for one in bench/*.py; do echo "$$one"; $(PY) "$$one"; done

pretrain: setup ## the tiny base again, into OUT (hours)
	$(UIVLM) pretrain "$(or $(OUT),runs/base)" --seed $(SEED)

clean: ## remove what the other targets made, .venv excepted
	rm -rf build runs .pytest_cache .mypy_cache .ruff_cache

runs/shards/split.json: | setup
	$(PY) -m data_prep.simulate runs/shards --seed $(SEED)

runs/data/meta.json: | setup $(NEEDS_SOURCE)
	$(PY) -m data_prep "$(SOURCE)" runs/data $(SPLIT_OPTION)

runs/tiny/card.json: | setup $(NEEDS_DATA)
	$(UIVLM) train tiny --set "data.folder=$(DATA)" --set train.seed=$(SEED) --out runs/tiny
