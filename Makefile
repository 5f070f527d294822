# Everything a person or a CI machine needs; `make help` lists it.
# Relative paths only, so that a checkout whose path has spaces works. Nothing here needs more than GNU make 3.81.

PYTHON ?= python3
BENCH ?= full
ACCEPTANCE ?= full
PYTEST_ARGUMENTS ?=
FAULTHOUND_SERVICE ?= http://127.0.0.1:$(or $(FAULTHOUND_PORT),4747)
# Half of what `make test` takes is waiting: three workers on two cores.
WORKERS ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# The tests start hundreds of processes: with this set each would compile the product anew.
unexport PYTHONDONTWRITEBYTECODE
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run serve agent check test lint bench acceptance scoreboard lock clean

PIP := .venv/bin/python -m pip --disable-pip-version-check
smallest = $(if $(filter smallest,$(1)),--smallest)
# PYTEST_ARGUMENTS may leave one of two runs without a test (exit code 5), which is no failure.
pytest = .venv/bin/python -m pytest $(1) $(PYTEST_ARGUMENTS) || [ $$? -eq 5 ]

help: ## this list
	@grep -hE '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20
	@printf '\n%s\n' "BENCH=smallest and ACCEPTANCE=smallest shorten those two. PYTHON=… chooses the interpreter (3.11 or newer)."
	@printf '%s\n' "PYTEST_ARGUMENTS='tests/house/test_docs.py -x' narrows the tests. FAULTHOUND_CORPUS=… names a folder of labelled real dumps."

run: .venv/installed-service ## diagnose the recorded incident in examples/hung_job
	@mkdir -p out
	.venv/bin/faulthound diagnose examples/hung_job --html out/report.html

serve: .venv/installed-service ## run the service for this machine, on http://127.0.0.1:4747, with its data in ~/.local/share/faulthound
	.venv/bin/faulthound serve

agent: .venv/installed-service ## run an agent on this machine that reports to it; beside it `faulthound-agent check` checks both
	.venv/bin/faulthound-agent run --service $(FAULTHOUND_SERVICE)

check: .venv/installed-check ## the quick tests, on every core: no PyTorch, no servers, no jobs
	$(call pytest,-n auto --dist loadfile -m 'not system and not slow and not alone and not acceptance')

test: .venv/installed-test ## run the test suite, what can on every core, then real jobs, three files at a time
	$(call pytest,-n $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'not alone and not acceptance')
	$(call pytest,-n 3 --dist loadfile --no-loadscope-reorder -m 'alone and not acceptance')

lint: .venv/installed-lint ## ruff, its formatter, mypy --strict, the import contracts
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	.venv/bin/python -m mypy --strict
	.venv/bin/lint-imports --no-logo

bench: .venv/installed-test ## bounds in time, then speed and memory into docs/measured (smallest: no bounds, into out)
	$(if $(filter smallest,$(BENCH)),,FAULTHOUND_BOUNDS=1 .venv/bin/python -m pytest -m bound)
	.venv/bin/python -m tests.bench.bench_torchfrtrace $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_agent $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_probe $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_service $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_connections $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_engine $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_reading $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_slow $(call smallest,$(BENCH))
	.venv/bin/python -m tests.bench.bench_hang $(call smallest,$(BENCH))

acceptance: .venv/installed-test ## the full matrices, resumable, into docs/measured (smallest: into out)
	.venv/bin/python -m tests.acceptance.run $(call smallest,$(ACCEPTANCE))

scoreboard: .venv/installed-test ## answer labelled cases beside naive rules and peers' methods, into docs/scoreboard.md
	.venv/bin/python -m tests.acceptance.calibration
	.venv/bin/python -m tests.acceptance.scoreboard

lock: .venv/made ## resolve every dependency anew and rewrite constraints.txt
	$(PIP) install -qq --dry-run --ignore-installed --report .venv/resolved.json '.[test,lint]' 'setuptools>=80'
	.venv/bin/python .ci/lock.py .venv/resolved.json >.venv/constraints.txt
	mv .venv/constraints.txt constraints.txt

clean: ## remove the environment, the caches and what was generated
	rm -rf .venv out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment and one stamp an extra: a second call installs nothing and needs no network. The extra of the first
# hour is the service's: after `make run` every verb that README names is there.
# The build backend comes first and by its pin: an isolated build would fetch its own and obey no constraints.
define installing
@echo "Installing faulthound$(if $(filter [service],$(1)),,$(1)) into .venv (once; a minute or two) …"
@$(PIP) install -qq --constraint constraints.txt setuptools
@$(PIP) install -qq --constraint constraints.txt --no-build-isolation --editable '.$(1)'
@touch '$@'
endef

.venv/installed-%: .venv/made pyproject.toml constraints.txt
	$(call installing,[$*])

.venv/made:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "There is no $(PYTHON) here: install Python 3.11 or newer, or name one with make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), Faulthound needs 3.11 or newer: name one with make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make environments: install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@.venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@touch '$@'
