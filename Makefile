# Everything is made below .venv/, .cache/ and reports/; `make clean` takes it away again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SKILLGEN := $(BIN)/skillgen
CACHE := .cache
RELEASES := $(CACHE)/releases
FETCHED := bridge-0.3.1 bridge-0.4.2 bridge-0.5.1 bridge-0.6.2 core-0.19.2
TECHNIQUE := vision-dp-over-cp
FAMILY ?= ministral3
NPROC ?= 2
PYTEST_ARGS ?=

.PHONY: venv releases demo test lint bench clean
.DELETE_ON_ERROR:

venv: $(VENV)/.done
$(VENV)/.done: requirements/dev.txt pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

releases: $(FETCHED:%=$(RELEASES)/%)
$(RELEASES)/bridge-%: | $(VENV)/.done
	$(SKILLGEN) fetch pypi:megatron-bridge==$* $@
$(RELEASES)/core-%: | $(VENV)/.done
	$(SKILLGEN) fetch pypi:megatron-core==$* $@

demo: $(VENV)/.done $(RELEASES)/bridge-0.6.2 $(RELEASES)/core-0.19.2
	@$(BIN)/python bench/demo.py --releases $(RELEASES) --work $(CACHE)/demo --report reports/demo \
		--technique $(TECHNIQUE) --family $(FAMILY) --nproc $(NPROC)

test: $(VENV)/.done releases
	SKILLGEN_RELEASES=$(CURDIR)/$(RELEASES) $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(CACHE)/typing && mkdir -p $(CACHE)/typing/skillgen
	ln -s $(CURDIR)/generators/* $(CURDIR)/runtime $(CURDIR)/evals $(CACHE)/typing/skillgen/
	$(BIN)/mypy -p skillgen

bench: $(VENV)/.done $(RELEASES)/bridge-0.6.2 $(RELEASES)/core-0.19.2
	$(BIN)/python bench/run.py --releases $(RELEASES)

clean:
	rm -rf $(VENV) $(CACHE) reports build dist *.egg-info
