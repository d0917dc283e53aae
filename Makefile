# Everything is made below .venv/, .cache/ and reports/; `make clean` takes it away again.
PYTHON ?= python3
VENV := .venv
AUTOMODEL_VENV := .venv-automodel
BIN := $(VENV)/bin
SKILLGEN := $(BIN)/skillgen
CACHE := .cache
RELEASES := $(CACHE)/releases
FETCHED := bridge-0.3.1 bridge-0.4.2 bridge-0.5.1 bridge-0.6.2 core-0.19.2 \
	automodel-0.4.0 automodel-0.5.0 automodel-0.6.0 automodel-0.7.0
# what the demo runs on: bridge (Megatron-Bridge 0.6.2) or automodel (NeMo Automodel 0.5.0)
TARGET ?= bridge
DEMO_bridge := bridge-0.6.2 core-0.19.2
DEMO_automodel := automodel-0.5.0
SLURM_RELEASES := automodel-0.7.0 bridge-0.6.2 core-0.19.2
FAMILY ?=
NPROC ?= 2
PYTEST_ARGS ?=
# processes that share out the test files
WORKERS ?= 2
PROOF_ARGS ?=

.PHONY: venv releases demo test test-evals test-slurm lint bench proof compatibility clean
.DELETE_ON_ERROR:

venv: $(VENV)/.done
$(VENV)/.done: requirements/dev.txt pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# Automodel 0.7.0 pins another transformers than Megatron-Bridge 0.6.2, so its evals have an environment of their own.
$(AUTOMODEL_VENV)/.done: requirements/eval-automodel.txt pyproject.toml setup.py
	$(PYTHON) -m venv $(AUTOMODEL_VENV)
	$(AUTOMODEL_VENV)/bin/python -m pip install --quiet --requirement requirements/eval-automodel.txt
	$(AUTOMODEL_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

releases: $(FETCHED:%=$(RELEASES)/%)
$(RELEASES)/automodel-%: | $(VENV)/.done
	$(SKILLGEN) fetch pypi:nemo-automodel==$* $@
$(RELEASES)/bridge-%: | $(VENV)/.done
	$(SKILLGEN) fetch pypi:megatron-bridge==$* $@
$(RELEASES)/core-%: | $(VENV)/.done
	$(SKILLGEN) fetch pypi:megatron-core==$* $@

demo: $(VENV)/.done $(DEMO_$(TARGET):%=$(RELEASES)/%)
	@$(BIN)/python bench/demo.py --target $(TARGET) --releases $(RELEASES) --work $(CACHE)/demo-$(TARGET) \
		--report reports/demo-$(TARGET) --nproc $(NPROC) $(if $(FAMILY),--family $(FAMILY))

# Files are shared out in order: those with few tests take longest, and would come last where the number decides.
PYTEST = SKILLGEN_RELEASES=$(CURDIR)/$(RELEASES) SKILLGEN_EVAL_PYTHON_AUTOMODEL=$(CURDIR)/$(AUTOMODEL_VENV)/bin/python \
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
test: $(VENV)/.done $(AUTOMODEL_VENV)/.done releases
	$(PYTEST) -m "not evals" $(PYTEST_ARGS)

# The long proofs: fault matrices, transcripts from zero, the targets' own tests, runs on more than one node.
test-evals: $(VENV)/.done $(AUTOMODEL_VENV)/.done releases
	$(PYTEST) -m evals $(PYTEST_ARGS)

# A Slurm of one node runs while these do; Debian's slurm-wlm and munge are installed where they are missing.
test-slurm: $(VENV)/.done $(AUTOMODEL_VENV)/.done $(SLURM_RELEASES:%=$(RELEASES)/%)
	SKILLGEN_RELEASES=$(CURDIR)/$(RELEASES) SKILLGEN_EVAL_PYTHON_AUTOMODEL=$(CURDIR)/$(AUTOMODEL_VENV)/bin/python \
		$(BIN)/python tests/launch/slurm/cluster.py $(BIN)/python -m pytest tests/launch/slurm $(PYTEST_ARGS)

lint: $(VENV)/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(CACHE)/typing && mkdir -p $(CACHE)/typing/skillgen
	ln -s $(CURDIR)/generators/* $(CURDIR)/runtime $(CURDIR)/evals $(CACHE)/typing/skillgen/
	$(BIN)/mypy -p skillgen

bench: $(VENV)/.done $(RELEASES)/bridge-0.6.2 $(RELEASES)/core-0.19.2
	$(BIN)/python bench/run.py --releases $(RELEASES)

# The runs behind card.yaml, then card.yaml itself; those whose report is of the code as it is are left out.
proof: $(VENV)/.done
	$(BIN)/python bench/proof.py --releases $(RELEASES) --work $(CACHE)/proof --reports reports/proof $(PROOF_ARGS)

# docs/compatibility.md from scans of every release that the card lists, and of checkouts where variables name them
compatibility: $(VENV)/.done
	$(SKILLGEN) card page --releases $(RELEASES) --fetch \
		$(addprefix --checkout ,$(SKILLGEN_BRIDGE_REPO) $(SKILLGEN_AUTOMODEL_REPO) $(SKILLGEN_CORE_REPO))

clean:
	rm -rf $(VENV) $(AUTOMODEL_VENV) $(CACHE) reports build dist *.egg-info
