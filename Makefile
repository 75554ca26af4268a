PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1

.PHONY: solve test soak results clean

solve: $(VENV)/.runtime ## solve the shipped examples on the CPU with the shipped weights
	$(BIN)/lehd solve examples/harbour.tsp --time-limit 10 --device cpu --output out/harbour.tour --plot out/harbour.png
	$(BIN)/lehd solve examples/bakery.vrp --time-limit 10 --device cpu --output out/bakery.sol --plot out/bakery.png

test: $(VENV)/.dev ## lint, types and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -m "not soak"

soak: $(VENV)/.dev ## slow campaigns: quality within a time limit, larger fuzzing
	$(BIN)/pytest -m soak -s

results: $(VENV)/.runtime ## docs/results.md from the result files; LEHD_DATA names the benchmark files, for pictures of tours
	$(BIN)/lehd bench report results --output docs/results.md --pictures docs/pictures/results --solutions results/solutions

$(VENV)/.runtime: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .[dev]
	touch $@

clean:
	rm -rf $(VENV) out build dist
