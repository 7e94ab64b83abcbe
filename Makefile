# make tune: a tuning table for the MPI of this computer, proved.   make test: its tests.
# Both set up what they use; nothing is downloaded a second time.

PYTHON ?= python3
export PYTHON
# Without cached bytecode each rank and server that a test starts would compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
SETUP := environment.sh environment.py
TEST_ENVIRONMENTS := .venv/dev-ready .venv-mpich/ready .venv-intelmpi/ready .venv-cupy/ready

.PHONY: tune test test-fast test-all test-extended test-weekly test-repeats test-emulation test-crashes test-site test-programs test-mpi4py test-mpich-suite test-torch test-studio check check-pages docs bench field venv locks clean

tune: venv
	@$(BIN)/tuner quickstart
	@echo "Type \`. $(BIN)/activate\` in your shell: it then finds tuner, mpirun and mpicc."

# Unit tests without ranks, services and compilers.
test-fast: .venv/dev-ready
	@$(BIN)/pytest -n 3 -m "not slow and not extended and not alone" tests/unit

# One more worker than cores: many tests wait for services and for ranks that sleep. What compares
# times runs afterwards, by itself; what needs a GPU, on a stand-in where there is none.
test: $(TEST_ENVIRONMENTS) build/tests-compiled
	@$(BIN)/pytest -n 3 -rs -m "not alone and not extended"
	@$(BIN)/pytest -rs -m "alone and not extended" tests/mpi
	@$(STANDIN) $(BIN)/pytest -n 3 -rs -m "not extended" tests/gpu

# pytest compiles each file of the tests once; its workers would all do it in a new checkout.
build/tests-compiled: .venv/dev-ready
	@$(BIN)/pytest --collect-only -qq >/dev/null
	@mkdir -p build && touch $@

# Everything that needs no network: emulated clusters, too, where hosts can be emulated.
test-all: test test-weekly test-studio
	@if unshare --mount --net true 2>/dev/null; then $(MAKE) --no-print-directory test-emulation; \
	else echo "tests/emulation is left out: it needs root and network namespaces"; fi

# Of the tests marked `extended` those for which a continuous integration has the time.
test-extended: .venv/dev-ready
	@$(BIN)/pytest -n 3 -rs -m "extended and not weekly and not alone and not browser" tests/unit tests/studio

# All that `make test` leaves out: once a week, and before something is called done. Also every
# property with all of its examples.
test-weekly: $(TEST_ENVIRONMENTS) .venv-docs/ready
	@TUNER_TEST_EXAMPLES=all $(BIN)/pytest -n 3 -rs -m "(extended or hypothesis) and not alone and not browser"
	@$(BIN)/pytest -rs -m "extended and alone" tests/mpi
	@$(STANDIN) $(BIN)/pytest -n 3 -rs -m extended tests/gpu

STANDIN := $(if $(wildcard /dev/nvidiactl),,PYTHONPATH=tests/support/cupy_standin)

# Continuous integration five times in random orders, two of them on a busy computer; takes hours.
test-repeats: .venv/dev-ready
	@$(BIN)/python -m tests.bench.ci_repeats

# The pages of the studio in Chromium, where that is installed.
test-studio: .venv/dev-ready
	@$(BIN)/pytest -n 3 -rs tests/studio

# A thousand rounds on each kind of database in which services are killed; about 25 minutes.
test-crashes: .venv/dev-ready
	@$(BIN)/python -m tests.bench.crashes

# mpi4py's own tests, under `tuner.run`, the preloaded library and neither; two hours on two cores.
test-mpi4py: .venv/dev-ready .venv-mpich/ready
	@$(BIN)/python -m tests.support.mpi4py_suite
	@$(BIN)/pytest -rs tests/mpi4py_suite

# MPICH's own test suite, of C programs, under native files, the preloaded library and neither; an hour
# and a half on two cores. apt-get gets it from Debian, with lists of its own; without Debian or network it is skipped.
test-mpich-suite: .venv/dev-ready .venv-mpich/ready
	@-$(BIN)/python -m tests.support.mpich_suite
	@$(BIN)/pytest -rs tests/mpich_suite

# With PyTorch, of which pip takes the build with CUDA, several GB, unless PIP_INDEX_URL names another.
test-torch: .venv/dev-ready .venv-torch/ready
	@$(BIN)/pytest -rs tests/torch

# On emulated clusters, which need root: real launches over several hosts.
test-emulation: .venv/dev-ready .venv-mpich/ready
	@$(BIN)/pytest -rs tests/emulation

# With the MPIs of this distribution's packages: apt-get installs them, in an overlay that the tests
# throw away, and so not into the system. Needs root.
test-site: .venv/dev-ready
	@$(BIN)/pytest -rs tests/site

# Debian's LAMMPS, Quantum ESPRESSO and other programs with its Open MPI, unchanged, under tables and
# without: installed in an overlay, too. Needs root; half an hour on two cores.
test-programs: .venv/dev-ready
	@$(BIN)/pytest -rs tests/programs

# A change that adds lines to tuner/ removes others; a smaller number is written here when it is reached.
LINE_BUDGET := 114822
check: .venv/dev-ready
	@lines=$$(git ls-files -z 'tuner/*.py' | xargs -0 cat | wc -l); test $$lines -le $(LINE_BUDGET) \
	|| { echo "tuner/ has $$lines lines of Python, more than the budget of $(LINE_BUDGET)"; exit 1; }
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory check-pages; \
	else echo "the studio's pages are not checked: that needs Node.js and npm"; fi

# The types of the studio's pages, by TypeScript, which npm installs here; nothing is compiled.
TYPESCRIPT := typescript@7.0.2
TSC := build/$(TYPESCRIPT)/node_modules/.bin/tsc
check-pages: $(TSC)
	@$(TSC) --project tuner/studio/jsconfig.json

$(TSC):
	@mkdir -p build/$(TYPESCRIPT)
	@npm install --silent --no-audit --no-fund --ignore-scripts --prefix build/$(TYPESCRIPT) $(TYPESCRIPT)

# The site of the documentation; a warning, such as a link that leads nowhere, is an error.
SITE := build/docs
docs: .venv-docs/ready
	@rm -rf $(SITE)
	@.venv-docs/bin/python -m docs.site.stage $(SITE)-source
	@.venv-docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --jobs auto \
		--conf-dir docs/site $(SITE)-source $(SITE)
	@echo "open $(SITE)/index.html"

bench: .venv/dev-ready
	@$(BIN)/python -m tests.bench

# What the tuning in tuner-out gains, timed by a plain C program that shares no code with tuner.
field: venv
	@$(BIN)/python -m tests.field.check tuner-out

# What every command of `tuner` needs: the extras `all` and `openmpi`. Open MPI and MPICH cannot share
# an environment.
venv: .venv/ready .venv-mpich/ready

.venv/ready: requirements.lock pyproject.toml $(SETUP)
	@./environment.sh .venv requirements.lock editable
	@touch $@

# The tools of developers, in the same environment.
.venv/dev-ready: .venv/ready requirements-dev.lock
	@./environment.sh .venv requirements-dev.lock
	@touch $@

.venv-mpich/ready: requirements-mpich.lock $(SETUP)
	@./environment.sh .venv-mpich requirements-mpich.lock importable
	@touch $@

# Intel MPI, for the tests that prove its tables; there is one for x86-64 alone.
.venv-intelmpi/ready: requirements-intelmpi.lock $(SETUP)
	@if [ "$$(uname -m)" = x86_64 ]; then \
		./environment.sh .venv-intelmpi requirements-intelmpi.lock importable; \
	else mkdir -p .venv-intelmpi; fi
	@touch $@

# The real CuPy, which the stand-in is held against; its kernels are compiled for x86-64 hosts here.
.venv-cupy/ready: requirements-cupy.lock $(SETUP)
	@if [ "$$(uname -m)" = x86_64 ]; then ./environment.sh .venv-cupy requirements-cupy.lock; \
	else mkdir -p .venv-cupy; fi
	@touch $@

# Sphinx, and what `tuner` needs to be imported: its reference pages come from parsers and docstrings.
.venv-docs/ready: requirements-docs.lock $(SETUP)
	@./environment.sh .venv-docs requirements-docs.lock importable
	@touch $@

.venv-torch/ready: requirements-torch.in
	@test -d .venv-torch || $(PYTHON) -m venv .venv-torch
	@.venv-torch/bin/pip install --quiet --requirement requirements-torch.in
	@touch $@

# Renew the locks and the sizes of the packages (needs the network and pip-tools). The lock of
# `tuner` itself is a part of the one for developers, which decides about the versions.
COMPILE := pip-compile --quiet --strip-extras --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-options --allow-unsafe
# With --build-deps-for, pip-compile builds the metadata, in which extras that name others are resolved.
TUNER := --build-deps-for wheel --extra openmpi --extra all
LOCKS := requirements.lock requirements-dev.lock requirements-mpich.lock requirements-intelmpi.lock \
	requirements-cupy.lock requirements-docs.lock
WHEELS := build/wheels

locks:
	rm -rf $(WHEELS)
	mkdir -p $(WHEELS)
	$(COMPILE) --upgrade $(TUNER) --extra dev --output-file requirements-dev.lock pyproject.toml
	sed -n 's/^\([^ ]*==[^ ]*\) .*/\1/p' requirements-dev.lock >build/versions.txt
	$(COMPILE) --constraint build/versions.txt $(TUNER) \
		--output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint build/versions.txt --extra all --extra docs \
		--output-file requirements-docs.lock pyproject.toml
	$(COMPILE) --upgrade --output-file requirements-mpich.lock requirements-mpich.in
	$(COMPILE) --upgrade --output-file requirements-intelmpi.lock requirements-intelmpi.in
	$(COMPILE) --upgrade --output-file requirements-cupy.lock requirements-cupy.in
	for lock in $(LOCKS); do \
		pip download --quiet --no-deps --require-hashes --dest $(WHEELS) --requirement $$lock || exit; \
	done
	$(PYTHON) environment.py --sizes $(WHEELS) >requirements.sizes

clean:
	rm -rf .venv .venv-mpich .venv-intelmpi .venv-cupy .venv-torch .venv-docs build tuner-out
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
