# Each target does all of its own set-up in .venv; Python 3.11 or newer is all that is needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
AXE_VERSION := 4.11.0
# Both names, since pip changed how a constraint reaches the environment in which a package is built.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt

.PHONY: install demo explore test browser check bench format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "gmlfm needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/gmlfm demo

# The explorer on the demo's run, which is trained where it is not there yet. PORT=9000 for another one.
PORT ?= 8765
explore: install
	test -f runs/demo/run.json || $(BIN)/gmlfm demo
	$(BIN)/gmlfm serve runs/demo --port $(PORT) --open

test: install
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

# The explorer in real Chromium. axe-core, which looks for what keeps people out, comes from npm into .browser.
AXE := .browser/node_modules/axe-core/axe.min.js
browser: install $(AXE)
	(command -v chromium && command -v chromedriver) >/dev/null || (apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium chromium-driver)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,browser]'
	$(BIN)/python -m pytest tests/browser -m browser

$(AXE): Makefile
	npm install --prefix .browser --no-save --no-audit --no-fund --loglevel=error axe-core@$(AXE_VERSION)
	touch $@

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install
	$(BIN)/python benchmarks/data_walk.py

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .browser build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
