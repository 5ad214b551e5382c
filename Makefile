# Every target does all its own set-up: a virtual environment in the checkout, installed with the pinned versions.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check docs replicate page torture corruption fuzz format clean

demo: $(READY)  ## five tasks in a row, in about a minute
	$(BIN)/bocl run digits

test: $(READY)  ## the whole test suite
	$(BIN)/pytest

check: $(READY)  ## lint, format, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_imports.py -n 0

docs: .venv/.docs-ready  ## the documentation as a site, docs/_build/index.html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

STUDIES := $(addprefix paper/,systems search attention warm-start price equal-size front more-seeds)
TIMED := $(addprefix paper/,time time-spread)
OURS := results/paper
WORKERS ?= 1
ifdef QUICK
RECORDS ?= runs/quick
REPLICATE := --on digits --seeds 0 --set stream.tasks=3 --set recipe.epochs=10 --device cpu
endif
RECORDS ?= $(OURS)
KEPT := $(patsubst ./%,%,$(RECORDS:/=))
REPLICATE += --out runs/of-$(subst /,-,$(KEPT)) --records $(KEPT)

replicate: $(READY)  ## what the folder RECORDS lacks of the paper's evaluation, and a page of it: a GPU, WORKERS=16, hours; QUICK=1: on digits, minutes
	$(BIN)/bocl study $(STUDIES) $(REPLICATE) --workers $(WORKERS)
	$(BIN)/bocl study $(TIMED) $(REPLICATE)
	$(MAKE) page

page: $(READY)  ## that page; of our own records also its figures and every table of the READMEs
	rm -rf runs/figures
	$(BIN)/bocl report $(KEPT) -o $(KEPT)/report.html $(if $(filter $(OURS),$(KEPT)),--assets runs/figures)
ifeq ($(KEPT),$(OURS))
	rm -rf $(OURS)/figures && mkdir $(OURS)/figures
	cp runs/figures/figure-*.svg runs/figures/attention-*.svg $(OURS)/figures/
	$(BIN)/python results/tables.py --write
endif

torture: $(READY)  ## kill runs at every system call and at random moments, and see that nothing is lost
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/kills.py

corruption: $(READY)  ## damage every file of a run in every way, and see that nothing answers wrongly
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/corruption.py

fuzz: $(READY)  ## thousands of wrong configs, arrays, archives and command lines, and see that each is refused in one line
	OMP_NUM_THREADS=1 BOCL_FUZZ=20 $(BIN)/pytest tests/fuzz -n 0

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

.venv/.docs-ready: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch .venv/.docs-ready
