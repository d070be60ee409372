# What each target does stands beside it; `make help` prints it.
PYTHON ?= python3
LAUNCH = $(PYTHON) -m chat_core.launcher

.DEFAULT_GOAL := help
.PHONY: help run test check bench soak backup restore demo-data clean

help: ## Show the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

run: ## Install what is missing and start Parley
	@$(LAUNCH) run

test: ## Install what the tests need and run all of them (ARGS="-k title" for some)
	@$(LAUNCH) test $(ARGS)

check: ## Check format, style and types
	@$(LAUNCH) check

bench: ## Print the measured numbers, one JSON object a line
	@$(LAUNCH) module bench $(ARGS)

soak: ## Kill and restart at random for a long time (ARGS="--minutes 30")
	@$(LAUNCH) module tests.faults.soak $(ARGS)

backup: ## Copy the data to a file, also while Parley works (TO=/path/to/folder)
	@$(LAUNCH) module chat_core.backup $(if $(TO),--to "$(TO)")

restore: ## Put a backup back (FROM=/path/to/file.tar.gz); Parley must be stopped
	@$(LAUNCH) module chat_core.backup --restore "$(FROM)"

demo-data: ## Make a data folder with a month of sample work, to look at the statistics (TO=/path/to/new/folder)
	@$(LAUNCH) module chat_core.analytics.demo_data "$(or $(TO),build/demo-data)" $(ARGS)
	@echo 'Look at it with: PARLEY_DATA_DIR="$(or $(TO),build/demo-data)" make run'

clean: ## Remove the environments and caches; data/ stays
	rm -rf .venv .venv-bridge .venv.installing .venv-bridge.installing build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find chat_core pages tests -name __pycache__ -type d -prune -exec rm -rf {} +
