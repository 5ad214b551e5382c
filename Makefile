# Every target does all its own set-up: a virtual environment in the checkout, installed with the pinned versions.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check docs replicate page torture fuzz format clean

demo: $(READY)  ## five tasks in a row, in about a minute
	$(BIN)/bocl run digits

test: $(READY)  ## the whole test suite
	$(BIN)/pytest

check: $(READY)  ## lint, format, types, import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_imports.py -n 0

docs: $(READY)  ## the documentation as a site, docs/_build/index.html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build

TOGETHER := systems search attention warm-start price equal-size front more-seeds
ALONE := time time-spread
OURS := replication/results
WORKERS ?= 1
ifdef QUICK
RECORDS ?= runs/quick
REPLICATE := --on digits --seeds 0 --set stream.tasks=3 --set recipe.epochs=10 --device cpu
endif
RECORDS ?= $(OURS)
KEPT := $(patsubst ./%,%,$(RECORDS:/=))
PAGE := $(if $(filter $(OURS),$(KEPT)),runs/replication,$(KEPT))
REPLICATE += --out runs/of-$(subst /,-,$(KEPT)) --records $(KEPT)

replicate: $(READY)  ## what the folder RECORDS lacks of the paper's evaluation, and a page of it: a GPU, WORKERS=16, hours; QUICK=1: on digits, minutes
	$(BIN)/bocl study $(TOGETHER:%=replication/studies/%.toml) $(REPLICATE) --workers $(WORKERS)
	$(BIN)/bocl study $(ALONE:%=replication/studies/%.toml) $(REPLICATE)
	$(MAKE) page

page: $(READY)  ## that page; of our own records, in runs/replication, also its figures, and every table of the documents
	rm -rf $(PAGE)/figures
	$(BIN)/python -m replication.page $(KEPT) -o $(PAGE)/report.html $(if $(filter $(OURS),$(KEPT)),--assets $(PAGE)/figures)
ifeq ($(KEPT),$(OURS))
	$(BIN)/python -m replication.search figure replication/measurements/search/permuted-mnist.json \
		replication/measurements/search/split-cifar100.json -o $(PAGE)/figures
	cp $(PAGE)/figures/$(notdir $(wildcard replication/figures/*.svg)) replication/figures/
	$(BIN)/python -m replication.tables --write
	$(BIN)/python -m replication.untuned.tables --write
	$(BIN)/python -m replication.guessing.tables --write
	$(BIN)/python -m replication.pretrained.tables --write
	$(BIN)/python -m replication.scaling.tables --write
	$(BIN)/python -m replication.evaluation.tables --write
	$(BIN)/python -m replication.unequal.tables --write
	$(BIN)/python -m replication.averaging.tables --write
endif

STREAMS ?= permuted-mnist mixed-mnist split-cifar100
EVALUATION ?= runs/evaluation
FIRST := 200,201,202,203
ifdef QUICK
STREAMS := digits
EVALUATION := runs/evaluation-quick
FIRST := 200,201
FEW := --count 2
endif
WRITE = $(BIN)/python -m replication.evaluation
STUDY = $(BIN)/bocl study --out $(EVALUATION)/runs --workers $(WORKERS) $(if $(QUICK),--device cpu)
studies = $(STREAMS:%=$(EVALUATION)/studies/$1-%.toml)
.PHONY: evaluate tries own equal

evaluate: equal  ## every system by docs/protocol.md, into the folder EVALUATION: a GPU, WORKERS=14, an hour; QUICK=1: on digits, minutes
	-$(STUDY) $(call studies,own) $(call studies,equal) --records $(EVALUATION)/results
	$(WRITE).tables $(STREAMS) --place $(EVALUATION)

# A run may break down: the records say so, and the next step reads them.
tries: $(READY)
	$(WRITE) tries $(STREAMS) --place $(EVALUATION) $(FEW)
	-$(STUDY) $(call studies,tries) --records $(EVALUATION)/tried

own: tries
	$(WRITE) own $(STREAMS) --place $(EVALUATION) $(FEW)
	-$(STUDY) $(call studies,own) --records $(EVALUATION)/results --seeds $(FIRST)

equal: own
	$(WRITE) equal $(STREAMS) --place $(EVALUATION)
	-$(STUDY) $(call studies,equal) --records $(EVALUATION)/results --seeds $(FIRST)

torture: $(READY)  ## kills, damages, full disks, crashes in a row: an hour, and goes on where it stopped; PART=kills: a part; MINUTES=10: so much
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture $(PART) $(if $(MINUTES),--minutes $(MINUTES))

fuzz: $(READY)  ## thousands of wrong configs, arrays, archives and command lines, and see that each is refused in one line
	OMP_NUM_THREADS=1 BOCL_FUZZ=20 $(BIN)/pytest tests/fuzz -n 0

.PHONY: test-extras test-avalanche test-clusters test-gpu dist lock

test-extras: .venv-extras/.ready  ## the tests that need large extras for users: pyarrow, datasets, TensorBoard, MLflow
	.venv-extras/bin/python -m pytest -m extras -n 0

test-avalanche: .venv-avalanche/.ready  ## the tests that need Avalanche
	.venv-avalanche/bin/python -m pytest -m avalanche -n 0 tests/test_avalanche.py tests/test_packaging.py

test-clusters: .venv-clusters/.ready  ## the tests that need Ray and submitit; Ray is started once
	.venv-clusters/bin/python -m pytest -m clusters -n 2 --dist loadfile tests/engines tests/test_packaging.py

test-gpu: $(READY)  ## the tests that need a GPU; writes what came of them to tests/gpu-last-run.json, to be committed
	$(BIN)/pytest -m gpu -n 0

dist: $(READY)  ## build wheel and sdist, see what is in them, and run the installed wheel
	$(BIN)/python .ci/check_dist.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-extras .venv-avalanche .venv-clusters

lock:  ## pin what is installed here, with hashes; needs uv; UPGRADE="--upgrade-package numpy" takes a newer one
	$(PYTHON) .ci/lock.py $(UPGRADE)

PIP := $(BIN)/pip --quiet --disable-pip-version-check

# PyTorch's CPU build where pip is configured to find it, and otherwise the default build.
$(READY): pyproject.toml $(wildcard requirements/*)
	$(PYTHON) -m venv .venv
	cpu=$$(grep -o '[0-9.]*+cpu' requirements/cpu.txt); \
	$(BIN)/pip index versions torch 2>/dev/null | grep -qF "$$cpu" && build=cpu || build=cuda; \
	$(PIP) install --require-hashes --only-binary :all: --no-deps -r requirements/common.txt -r requirements/$$build.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) check
	touch $(READY)

# Environments of their own, which find everything else in the first: what others need not have is not in their way.
# GPUtil, which Avalanche imports, is published as sources only; setuptools of the first environment build it.
.venv-%/.ready: $(READY)
	$(PYTHON) -m venv --without-pip .venv-$*
	place=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "import site; site.addsitedir('$$place')" > $$(echo .venv-$*/lib/python3*/site-packages)/main.pth
	$(PIP) --python .venv-$* install --require-hashes --only-binary :all: --no-binary gputil --no-build-isolation \
		--no-deps -r requirements/$*.txt
	$(PIP) --python .venv-$* check
	touch .venv-$*/.ready
