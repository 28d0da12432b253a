# make setup       create .venv with everything; all other targets do this first
# make run         train and export the default network; a second run reuses what is there
# make test        run the tests
# make check       run linter, formatter and type checker; those of the page's JavaScript need Node.js and npm
# make audit       check the pinned versions for known vulnerabilities
# make sbom        write the bills of materials of the images that docker compose has built
# make format      format the code
# make protos      compile the .proto files of the gRPC services
# make lowest      run the fast tests of service, client and scoring on the oldest versions that pyproject.toml allows
# make slow        run the tests that take minutes
# make endurance   run the longest tests
# make controls    turn off each defence of the service and see its test fail
# make mutants     run tests against random small errors in the code
# make containers  run the tests that need a Docker engine
# make dist        build the wheel and the sdist, and install them in fresh environments
# make browser     run the tests that open the dashboard in a browser
# make bench       measure the service and its rivals (needs wrk)
# make cuda        prove, compare and measure on a GPU; ends at once without one (needs wrk)
# make fuzz        change valid inputs of every decoder at random, each for FUZZ_SECONDS (40)
# make soak        show whether the server's memory grows over three million requests
# make clean       remove the virtual environments, caches and build files

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PAGE_BIN := javascript/node_modules/.bin
READY := .venv/ready
PAGE_READY := javascript/node_modules/ready
# EXCEPT=thorough leaves out the tests with this mark, in slow, containers and browser.
NOT := $(if $(EXCEPT), and not $(EXCEPT))
PROTOS := service/grpc/messages/protos
PYTEST := $(BIN)/python -m pytest
# Worksteal gives a process neighbouring tests, which share fixtures such as servers.
PARALLEL := --dist worksteal --numprocesses auto
# The fast tests wait for processes that they start: three processes for two CPUs take a tenth less time than two.
HALF_MORE := --dist worksteal --numprocesses $(shell expr $$(nproc) '*' 3 / 2)

# Tests start many processes, which start faster from compiled files.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run test lowest slow endurance controls mutants containers browser dist bench cuda fuzz soak check check-page audit sbom format protos clean

help:
	@sed -n 's/^# make/make/p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "expected Python 3.11 or newer on the PATH, or make PYTHON=..., got none" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot create virtual environments; on Debian: apt install python3-venv" >&2; exit 1; }
	@echo "installing turnpike and its libraries into .venv: once, some minutes"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@start=$$(date +%s); $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' && \
		echo "installed in $$(($$(date +%s) - start)) s"
	@touch $@

run: setup
	$(BIN)/turnpike demo

test: setup
	$(PYTEST) $(HALF_MORE) $(ARGS)

lowest: setup
	.ci/lowest $(ARGS)

slow: setup
	$(PYTEST) $(PARALLEL) -m "slow$(NOT)" $(ARGS)
	$(PYTEST) -m "load$(NOT)" $(ARGS)

endurance: setup
	$(PYTEST) -m endurance $(ARGS)

controls: setup
	$(BIN)/python -m tests.reliability.controls $(ARGS)

mutants: setup
	$(BIN)/python -m tests.mutants $(ARGS)

containers: setup
	$(PYTEST) -m "containers$(NOT)" $(ARGS)

bench: setup
	$(BIN)/python -m benchmarks $(ARGS)

cuda: setup
	$(BIN)/python -m benchmarks.cuda $(ARGS)

fuzz: setup
	FUZZ_SECONDS=$${FUZZ_SECONDS:-40} $(PYTEST) --timeout 1000 -rP $(ARGS) $(shell find tests -name 'test_*fuzz.py')

soak: setup
	$(BIN)/python -m benchmarks soak $(ARGS)

dist: setup
	$(BIN)/python .ci/dist.py
	$(PYTEST) $(PARALLEL) -m dist $(ARGS)

browser: setup
	$(PYTEST) $(PARALLEL) -m "browser$(NOT)" $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v npm >/dev/null && node javascript/node_version.cjs; then \
		$(MAKE) --no-print-directory check-page; \
	else \
		echo "the page's JavaScript is not checked: expected npm and Node.js as javascript/package.json says"; \
	fi

# the linter and the type checker of the page's JavaScript
check-page: $(PAGE_READY)
	$(PAGE_BIN)/eslint --config javascript/eslint.config.js --max-warnings 0 service/dashboard javascript tests/javascript tests/support
	$(PAGE_BIN)/tsc --project javascript

$(PAGE_READY): javascript/package.json javascript/package-lock.json
	npm --prefix javascript ci
	@touch $@

audit: setup
	$(BIN)/python .ci/audit.py $(ARGS)

sbom: setup
	$(BIN)/python .ci/sbom.py $(ARGS)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

protos: setup
	$(BIN)/python -m grpc_tools.protoc --include_imports --proto_path $(PROTOS) \
		--descriptor_set_out $(PROTOS)/services.binpb $(PROTOS)/*.proto

clean:
	rm -rf .venv .lowest .audit .clients .bench build dist src/*.egg-info javascript/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
