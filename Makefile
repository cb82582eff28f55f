# Two targets need only Python 3.11 or newer and pip:
#   make train   installs into .venv what training and Atari need, and trains the default agent
#   make test    installs the test extras, then runs lint, types and tests
# Tests with PyTorch: `make test-integrations`; with Ray: `make test-ray`; training for minutes: `make test-slow`.
# ARGS goes to `byol-explore train` or to pytest: make train ARGS="--seed 1". MARKS selects tests with PyTorch and Ray:
# make test-ray MARKS=slow

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
MARKS ?= not slow
# Keep bytecode, even if the environment says otherwise: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: train test test-integrations test-envpool test-ray native test-native drill-ray browser test-slow test-lean lint types benchmark benchmark-encoder screenshot drills clean

train: .venv/installed
	@$(BIN)/byol-explore train $(ARGS) || { code=$$?; \
	  [ $$code != 2 ] || echo 'options are given in ARGS, for example: make train ARGS="--resume"' >&2; exit $$code; }

test: .venv/installed-test lint types browser
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow" --ignore tests/integrations --ignore tests/cluster --ignore tests/envpools $(ARGS)

# Curiosity in Stable-Baselines3 and TorchRL, and with real tensors.
test-integrations: .venv/installed-integrations
	$(BIN)/python -m pytest -n auto --dist loadfile -m "$(MARKS)" tests/integrations $(ARGS)

# EnvPool's MiniGrid against Farama's, step for step; its packages and assets take about 750 MB of the disk.
test-envpool: .venv/installed-envpool
	$(BIN)/python -m pytest tests/envpools $(ARGS)

# Acting with Ray, one test after the other, because they share a cluster.
test-ray: .venv/installed-ray
	$(BIN)/python -m pytest -m "$(MARKS)" tests/cluster $(ARGS)

# Build byol-explore-native, the compiled residual network of the paper's encoders, and install it into .venv. Needs GCC
# or Clang.
native: .venv/installed-native

test-native: .venv/installed-test .venv/installed-native
	$(BIN)/python -m pytest tests/native tests/networks/test_native_resnet.py $(ARGS)

# Actors, inference servers and learners that are killed or stopped, fifty times.
drill-ray: .venv/installed-ray
	$(BIN)/python tests/drills/cluster.py $(ARGS)

# Install the browser that tests the report page, from Debian's packages; without them those tests skip.
browser:
	@tests/report/install_browser

# Tests that train or start several processes for minutes.
test-slow: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow --ignore tests/integrations --ignore tests/cluster --ignore tests/envpools $(ARGS)

# The core, installed without any extra.
test-lean:
	$(PYTHON) -m venv --clear .venv-lean
	.venv-lean/bin/pip install --quiet --disable-pip-version-check --no-compile . -c constraints.txt
	.venv-lean/bin/python tests/lean.py

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed-test
	$(BIN)/basedpyright

benchmark: .venv/installed
	$(BIN)/python benchmarks/throughput.py $(ARGS)

benchmark-encoder: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(BIN)/python benchmarks/encoder.py $(ARGS)

# Take the README's picture of the laptop study's page again, after the page was rendered.
screenshot: .venv/installed browser
	$(BIN)/python docs/screenshot.py docs/laptop/report/index.html docs/laptop.png $(ARGS)

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e ".[train,atari]" -c constraints.txt
	@touch $@

.venv/installed-test: .venv/installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e ".[test]" -c constraints.txt
	touch $@

.venv/installed-integrations: .venv/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e ".[test,sb3,torchrl]" -c constraints.txt
	touch $@

.venv/installed-envpool: .venv/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e ".[test,envpool]" -c constraints.txt
	touch $@

.venv/installed-ray: .venv/installed-test
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -e ".[test,ray]" -c constraints.txt
	touch $@

.venv/installed-native: .venv/installed $(wildcard native/*.* native/cpp/* native/src/byol_explore_native/*)
	$(BIN)/pip install --quiet --disable-pip-version-check scikit-build-core cmake ninja
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps ./native
	@touch $@

clean:
	rm -rf .venv .venv-lean

# Kill training, damage its files, fill its disk, hang its environments, attack its server: half an hour and more.
drills: .venv/installed-test
	for drill in kill damage full_disk hang hostile strangers; do $(BIN)/python tests/drills/$$drill.py $(ARGS) || exit 1; done
