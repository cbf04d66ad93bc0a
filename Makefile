# Two commands start on a machine that has Python 3.11 or newer and make:
#   make lab    opens JupyterLab on the first notebook
#   make test   runs what a change is likely to break; make test-all everything
# Each makes .venv first and installs again only when pyproject.toml has changed (or the folder has moved).

VENV := .venv
PY := $(VENV)/bin/python
FIRST := 01_first_model

# Passed on to the commands, e.g. `make lab LAB_FLAGS="--no-browser --port=8899"`, `make test TEST_FLAGS="-k walk -x"`.
LAB_FLAGS ?=
TEST_FLAGS ?=
BENCH_FLAGS ?=
MATRIX_FLAGS ?=
WORKERS ?= 2
# The tests of a file stay in one worker. A worker that dies fails the run: pytest-xdist would replace it, assign finished files to the
# replacement, and wait forever (https://github.com/pytest-dev/pytest-xdist/issues/1378).
SPREAD := -n $(WORKERS) --dist loadfile --max-worker-restart=0
# Settings of JAX under which the packages that compute are tested once more.
SETTINGS ?= x64 strict nans eager leaks
COMPUTING := tests/core tests/calls tests/graphs tests/nn tests/optim

# The first of these that exists and is new enough. `make lab PYTHON=/path/to/python3.13` chooses another.
PYTHON ?= $(eval PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done))$(PYTHON)

# An editable install remembers where it was made, so a folder that was moved or copied is installed again.
MOVED := $(if $(filter $(CURDIR),$(shell cat $(VENV)/folder 2>/dev/null)),,moved)

# JupyterLab refuses to start as root without this option.
AS_ROOT := $(if $(filter 0,$(shell id -u)),--allow-root)

.DEFAULT_GOAL := help
.PHONY: wild smoke-files notebooks clinic help lab demo test test-all smoke test-long settings matrix kernels docs bench lint format leaks clean moved provision prepare frontend

help:
	@echo "make lab     open JupyterLab on notebooks/$(FIRST) (LAB_FLAGS is passed on)"
	@echo "make demo    run that notebook and write build/$(FIRST).html, one page that needs no network"
	@echo "make test    run what a change can break, ten minutes on two cores (TEST_FLAGS is passed to pytest)"
	@echo "make test-all  also run lessons, browsers, other frameworks and the documentation build: 25 minutes on two cores"
	@echo "make smoke   run the core tests of every package: two minutes, no torch, no browser"
	@echo "make matrix  run the smoke tests with the oldest and newest JAX on every installed Python"
	@echo "make kernels run the tests of clicks in a busy cell with the releases of ipykernel in KERNELS"
	@echo "make provision  install the programs of the tests with apt, as administrator (Chromium, node, Graphviz)"
	@echo "make test-long  run the tests that take minutes, such as thousands of damaged files"
	@echo "make settings  run tests under settings of JAX: 64 bits, strict promotion, ... (SETTINGS=\"x64 nans\" for some)"
	@echo "make leaks   run tests under JAX's check for leaked tracers"
	@echo "make notebooks  write the lessons as .ipynb files, the first one with its outputs"
	@echo "make docs    build the documentation into build/docs, running the lessons; warnings are errors"
	@echo "make bench   time nbmodule against raw JAX and installed peers (BENCH_FLAGS is passed on)"
	@echo "make clinic  train runs with planted faults and healthy runs, and count what the rules of diagnosis name"
	@echo "make lint    ruff, pyright and tsc; \`make format\` fixes what it can"
	@echo "make clean   delete .venv, node_modules and build"

lab: $(VENV)/installed-notebooks
	@$(PY) -m jupytext --quiet --sync notebooks/*.py
	$(PY) -m jupyterlab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/$(FIRST).ipynb $(AS_ROOT) $(LAB_FLAGS)

demo: $(VENV)/installed-notebooks
	@$(PY) tools/make_page.py notebooks/$(FIRST).py build/$(FIRST).html

test: prepare $(VENV)/installed-test frontend
	@$(PY) -m pytest $(SPREAD) --no-loadscope-reorder -m "not long and not slow" $(TEST_FLAGS)

# Everything except tests marked long: also kernels, browsers, lessons, the documentation. Run it before a release.
test-all: prepare $(VENV)/installed-test frontend
	@$(PY) -m pytest $(SPREAD) --no-loadscope-reorder $(TEST_FLAGS)

# One or more files for each package, without tests that start several processes. An environment of the package and `.[smoke]` is enough for them.
SMOKE := $(addprefix tests/,base tree/test_container.py core/test_frame.py core/test_functional.py core/test_building.py \
	core/test_compiling.py nn/test_containers.py nn/functional/test_edges.py optim/test_rules.py optim/test_group.py \
	files/test_weights.py calls/test_track.py graphs/test_trace.py scale/test_hosts.py views/test_text.py views/test_show.py \
	live/test_loop.py interventions/test_edit.py marking/test_notebook.py api/test_files.py project/test_layers.py project/test_import.py) \
	$(addprefix --deselect=tests/scale/test_hosts.py::,test_two_processes_give_the_losses_of_one test_joining_too_late_is_said)

smoke: $(VENV)/installed-smoke
	@$(PY) -m pytest $(SPREAD) -m "not long and not chromium and not node" $(SMOKE) $(TEST_FLAGS)

# For tools/matrix.py.
smoke-files:
	@echo $(SMOKE)

matrix:
	@$(PYTHON) tools/matrix.py $(MATRIX_FLAGS)

# The tests of clicks in a busy cell with other releases of ipykernel: make kernels KERNELS="6.29.5 newest"
kernels: prepare $(VENV)/installed-test
	@NBMODULE_KERNELS="$(KERNELS)" $(PY) -m pytest -n 1 -m long tests/live/test_kernels.py $(TEST_FLAGS)

# Published models of PyTorch packages in an environment of their own, on top of the test environment; PyTorch stays as it is. WILD names models.
.wild/installed: pyproject.toml | prepare
	@$(PY) -m venv .wild
	@$(PY) -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' > "$$(.wild/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/tests.pth"
	@.wild/bin/python -m tests.wild.environment
	@touch $@

wild: .wild/installed
	@KERAS_BACKEND=jax .wild/bin/python -m tests.wild.table $(WILD) --write

test-long: prepare $(VENV)/installed-test
	@$(PY) -m pytest -n $(WORKERS) -m long tests $(TEST_FLAGS)
	@$(MAKE) --no-print-directory settings

# One run for each setting of tests/plugins/jax_settings.py. JAX's caches have no effect under `eager` and `leaks`, which are slowest.
settings: $(VENV)/installed-test
	@failed=; for setting in $(SETTINGS); do \
	NBMODULE_SETTING=$$setting $(PY) -m pytest -q $(SPREAD) $(COMPUTING) $(TEST_FLAGS) || failed="$$failed $$setting"; done; \
	test -z "$$failed" || { echo "failed under:$$failed"; exit 1; }

leaks:
	@$(MAKE) --no-print-directory settings SETTINGS=leaks

# Lessons are written as py:percent files; GitHub, Colab and Binder open the .ipynb files made from them.
notebooks: $(VENV)/installed-notebooks
	@$(PY) tools/make_notebooks.py --run

docs: $(VENV)/installed-docs
	@$(PY) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

bench: $(VENV)/installed-notebooks
	@$(PY) -m benchmarks $(BENCH_FLAGS)

# Planted training faults and healthy runs: how well the rules of diagnosis judge. Writes the table of docs/views/diagnosis.md.
clinic: $(VENV)/installed-notebooks
	@mkdir -p build
	@$(PY) -m benchmarks.clinic --json build/clinic.json
	@$(PY) -m benchmarks.clinic.page build/clinic.json

lint: $(VENV)/installed-test frontend
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m pyright
	@npm run --silent types

format: $(VENV)/installed-test
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

# Interactive: may ask for the password.
provision:
	@tools/provision --again --ask

# For `make test`: as root (a fresh container, continuous integration), install missing programs; otherwise print their names.
prepare:
	@tools/provision

frontend: node_modules/installed

node_modules/installed: package.json package-lock.json | prepare
	@if ! command -v npm >/dev/null; then echo "npm is missing: the front-end tests will be skipped"; \
	elif npm ci --silent; then touch $@; \
	else echo "npm could not install the packages of package-lock.json: the front-end tests will be skipped"; fi

$(VENV)/installed-%: pyproject.toml $(MOVED)
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found (set PYTHON=/path/to/python3.x)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || tools/provision python3-venv
	@test -x $(PY) || { echo "making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing nbmodule[$*] into $(VENV): some minutes the first time"
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@echo '{}' > $(VENV)/package.json # else node reads JupyterLab's scripts as ES modules, as our package.json declares
	@echo "$(CURDIR)" > $(VENV)/folder
	@touch $@

moved:

clean:
	rm -rf $(VENV) node_modules build
