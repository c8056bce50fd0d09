# make demo and make test set up what they need, in virtual environments of their own, and are quick when run again.
PYTHON ?= python3
VENV := .venv
EXPORT := .venv-export
CLIENTS := .venv-clients
DOCS := .venv-docs
PIP_FLAGS := --quiet --disable-pip-version-check
export HF_HUB_OFFLINE := 1
# Without it each of the tests' thousand processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-docker test-all test-clients models faults fuzz lint clean conformance

demo: $(VENV)/.demo
	@$(VENV)/bin/trb demo

# Four workers on two cores: some always wait for a server. A module stays in one of them, the slow ones begin. docs/testing.md: what each tier runs.
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev
	$(VENV)/bin/pytest $(PARALLEL)

# Needs what .ci/docker, .ci/prometheus, .ci/traefik and .ci/compose install. One at a time: each test looks for what it left in the daemon.
test-docker: $(VENV)/.dev
	$(VENV)/bin/pytest -m docker

# The gateway: its routes before a real server, then unmodified clients from PyPI and npm. ONLY="-k langchain": some of them.
test-clients: $(VENV)/.dev $(CLIENTS)/.ready
	$(if $(ONLY),,$(VENV)/bin/pytest $(PARALLEL) -m "gateway and not slow")
	TRB_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CLIENTS)/bin/pytest -c tests/clients/pytest.ini tests/clients $(ONLY)

test-all: $(VENV)/.dev $(EXPORT)/.ready
	$(VENV)/bin/pytest $(PARALLEL) -m "not docker"
	$(VENV)/bin/pytest -m docker
	@PYTHONPATH=tests $(VENV)/bin/python -m conformance

# Writes tests/data/models anew; review the diff before you commit it.
models: $(VENV)/.dev $(EXPORT)/.ready
	PYTHONPATH=.:tests $(VENV)/bin/python -m tests.models

# Architectures × tasks against transformers in PyTorch; writes docs/tasks.md. CELLS="BERT RoBERTa/fill-mask": only those.
conformance: $(VENV)/.dev $(EXPORT)/.ready
	@PYTHONPATH=tests $(VENV)/bin/python -m conformance $(CELLS)

# Folders that sentence-transformers saves: the served answers beside those of its encode and predict (three minutes).
.PHONY: sentence-transformers
FOLDERS := .cache/sentence-transformers
sentence-transformers: $(VENV)/.dev $(EXPORT)/.ready
	@rm -rf $(FOLDERS)
	@PYTHONPATH=tests $(EXPORT)/bin/python -m conformance.sentence_transformers_folders record $(FOLDERS)
	@PYTHONPATH=tests $(VENV)/bin/python -m conformance.sentence_transformers_folders compare $(FOLDERS)

# Deliberate faults in a copy of the checkout, one at a time: do the everyday tests notice? FAULTS="F01 F02": only those.
faults: $(VENV)/.dev
	@$(VENV)/bin/python -m tests.faults $(FAULTS)

# Damaged files for every reader, half an hour; writes a section of docs/reliability.md. FUZZ="--only onnx --executions 1000": less.
fuzz: $(VENV)/.dev
	@PYTHONPATH=.:tests/support $(VENV)/bin/python -m tests.reliability.fuzz $(or $(FUZZ),--output docs/reliability.md)

# Relations between the answers of hundreds of random graphs on a real server (15 minutes); docs/reliability.md.
.PHONY: metamorphic
metamorphic: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.metamorphic --output docs/reliability.md

# 100,000 requests while promotes are killed and paused and servers restarted; docs/reliability.md.
.PHONY: history
history: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.history --output docs/reliability.md

# Half an hour of load with promotes, dead processes and hostile requests; docs/reliability.md.
.PHONY: soak
soak: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.soak --output docs/reliability.md

# Each system call of build, commit, push … fails or is the last one (strace; an hour of one core); writes docs/reliability.md.
# CALLS="--only promote --sample 20": less.
.PHONY: reliability
reliability: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.system_calls $(or $(CALLS),--output docs/reliability.md --rows docs/reliability.calls.json)

# The same of promote --url and apply, with a server that runs (seconds for each fault, so a sample of them).
.PHONY: reliability-live
reliability-live: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.live_calls $(or $(CALLS),--sample 60 --output docs/reliability.md)

# Readiness probes of a server and of an endpoint while promotes, rollbacks and applies run (two minutes); docs/reliability.md.
.PHONY: readiness
readiness: $(VENV)/.dev
	@PYTHONPATH=.:tests:tests/support $(VENV)/bin/python -m tests.reliability.readiness --output docs/reliability.md

# Everything that only a GPU can show, in steps that can be taken up again; docs/gpu.md. GPU="--device cpu --small": without one.
.PHONY: gpu
gpu: $(VENV)/.dev
	@$(VENV)/bin/python benchmarks/gpu.py $(GPU)

# What each Triton release brings: reads NVIDIA's compatibility matrix on GitHub, or in a clone, and adds new releases to
# releases.toml; review the diff before you commit it. RELEASES="--dry-run ~/clones/server": from a clone, nothing is written.
.PHONY: releases
releases: $(VENV)/.dev
	@$(VENV)/bin/python benchmarks/renew_releases.py $(RELEASES)

# The site of docs/ into site/; a broken link or anchor is an error. It needs no network and loads nothing from elsewhere.
.PHONY: docs test-docs docs-version
docs: $(DOCS)/.ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

# The built site: links, Markdown twins, llms.txt, versions, search in a browser.
test-docs: docs
	$(DOCS)/bin/pytest -c tests/site/pytest.ini tests/site

# The site beside those of other versions, committed to the branch gh-pages, which is not pushed. VERSION=0.2: its name.
docs-version: $(DOCS)/.ready
	$(if $(VERSION),,$(error name the version: make docs-version VERSION=0.2))
	@PATH="$(CURDIR)/$(DOCS)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases --alias-type redirect $(VERSION) latest
	@$(DOCS)/bin/mike set-default latest

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

clean:
	rm -rf $(VENV) $(EXPORT) $(CLIENTS) $(DOCS) .venv-peers .cache .demo dist build site

$(VENV)/bin/python:
	@echo "making $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing trb and the embedded tritonserver (once, about a minute)"
	@$(VENV)/bin/pip install $(PIP_FLAGS) -c constraints.txt -e '.[embedded]'
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "installing trb with its test tools (once, about a minute)"
	@$(VENV)/bin/pip install $(PIP_FLAGS) -c constraints.txt -e '.[embedded,dev,bench,gateway,top]'
	@touch $@ $(VENV)/.demo

# Its own environment: optimum-onnx pins an older transformers and brings a second ONNX Runtime.
$(EXPORT)/.ready: constraints-export.txt
	@echo "making $(EXPORT) with torch and optimum, to export test models (once, some minutes)"
	@$(PYTHON) -m venv $(EXPORT)
	@$(EXPORT)/bin/pip install $(PIP_FLAGS) -r constraints-export.txt
	@touch $@

# Its own environment: the pins of the other servers' packages are not ours.
.venv-peers/.ready: constraints-peers.txt
	@echo "making .venv-peers with infinity and fastembed, for benchmarks/peers.py (once, some minutes)"
	@$(PYTHON) -m venv .venv-peers
	@.venv-peers/bin/pip install $(PIP_FLAGS) -r constraints-peers.txt
	@touch $@

# Its own environment: the clients that tests/clients runs (openai, litellm, LangChain, LlamaIndex, Haystack, cohere,
# huggingface_hub, chromadb), without trb, and Node.js with the npm packages of openai and cohere.
$(CLIENTS)/.ready: constraints-clients.txt tests/clients/package.json
	@echo "making $(CLIENTS) with the clients that test-clients runs (once, some minutes)"
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/pip install $(PIP_FLAGS) --no-deps -r constraints-clients.txt
	@cp tests/clients/package.json $(CLIENTS)/
	@cd $(CLIENTS) && PATH="$$PWD/bin:$$PATH" bin/npm install --silent --no-audit --no-fund --ignore-scripts
	@touch $@

# Its own environment: MkDocs and its theme, with which trb has nothing to do.
$(DOCS)/.ready: constraints-docs.txt
	@echo "making $(DOCS) with MkDocs, for the site of docs/ (once)"
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install $(PIP_FLAGS) --no-deps -r constraints-docs.txt
	@touch $@

# Writes model_repository/ anew from examples/, docs/options.md and docs/deploy.toml.md, and the trees of examples/deploy/; review
# the diff before you commit it.
.PHONY: golden
golden: $(VENV)/.dev
	$(VENV)/bin/python tests/golden/test_model_repository.py
	$(VENV)/bin/python tests/unit/docs/test_options_table.py
	$(VENV)/bin/python tests/unit/docs/test_deploy_table.py
	$(VENV)/bin/python tests/unit/check/test_explain.py
	$(VENV)/bin/python tests/golden/test_deploy_trees.py
