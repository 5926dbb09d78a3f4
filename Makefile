# What people type. It needs make (GNU, 3.81 or newer) and Python 3.11 or newer, nothing else.
# Paths are relative on purpose: the folder may be called anything, with blanks too.
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup run test check format demo psql bench chaos peers docs lock clean

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
PIP_INSTALL := $(PYTHON_BIN) -m pip install --quiet --disable-pip-version-check --no-input \
	--require-hashes --only-binary :all:
READY := $(VENV)/.ready# younger than what the virtual environment was made from
# Three processes, a file of tests each at a time: tests mostly wait, and those of one file may share a server.
SIDE_BY_SIDE := --numprocesses 3 --dist loadfile --no-loadscope-reorder# else files of few, long tests come last
UNFINISHED := $(VENV)/.unfinished# there while something is installed; found at a start, it means start over

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## make .venv with the pinned dependencies; instant when it is there
	@:

run: $(READY) ## start everything and show its URL
	@exec $(VENV)/bin/snapapp serve $(ARGS)

test: $(READY) ## run every test; ARGS="-k lease" runs some
	@$(PYTHON_BIN) -m pytest $(SIDE_BY_SIDE) $(ARGS)

check: $(READY) ## lint, formatting, types, import contracts
	$(PYTHON_BIN) -m ruff check
	$(PYTHON_BIN) -m ruff format --check
	$(PYTHON_BIN) -m mypy
	$(VENV)/bin/lint-imports

format: $(READY) ## put the code into shape
	$(PYTHON_BIN) -m ruff check --fix
	$(PYTHON_BIN) -m ruff format

demo: $(READY) ## prepare the demo video and its three snaps anew, where they are missing
	@exec $(VENV)/bin/snapapp demo $(ARGS)

psql: $(READY) ## open psql on the database in use
	@exec $(VENV)/bin/snapapp psql $(ARGS)

bench: $(READY) ## measure the queue on this machine
	@exec $(VENV)/bin/snapapp bench $(ARGS)

chaos: $(READY) ## break things on purpose and look for lost jobs
	@exec $(PYTHON_BIN) -m tests.chaos $(ARGS)

peers: $(READY) ## install the other queues that bench can compare with
	@mv $(READY) $(UNFINISHED)
	$(PIP_INSTALL) -r requirements-peers.lock
	@mv $(UNFINISHED) $(READY)

docs: $(READY) ## write the pages that are made from code: settings.md, proofs.md
	@$(PYTHON_BIN) -c 'import pathlib, snapapp.settings as s; pathlib.Path("docs/settings.md").write_text(s.documentation())'
	@$(PYTHON_BIN) -m tests.proofs

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate pyproject.toml

lock: ## pin the dependencies anew (needs uv); ARGS=--upgrade takes newer ones
	@command -v uv >/dev/null || { echo "make lock needs uv; one way to get it: pipx install uv" >&2; exit 1; }
	$(COMPILE) $(ARGS) -o requirements.lock
	$(COMPILE) $(ARGS) --extra dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) $(ARGS) --extra peers -c requirements-dev.lock -o requirements-peers.lock

clean: ## remove .venv and every cache; never var, where the data is
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find snapapp tests migrations -name __pycache__ -prune -exec rm -rf {} +

# --- Set-up -------------------------------------------------------------------------------------------------

# Without its Python (removed, upgraded away) a virtual environment is none, whatever its age. Not $(wildcard), which
# is content with a link that leads nowhere.
ifneq ($(shell test -x $(PYTHON_BIN) || echo gone),)
.PHONY: $(READY)
endif

$(READY): requirements-dev.lock pyproject.toml Makefile
	@rm -f $(READY)
	@[ ! -e $(UNFINISHED) ] && $(PYTHON_BIN) -m pip --version >/dev/null 2>&1 || sh -c "$$NEW_VENV"
	@: >$(UNFINISHED)
	@echo "Installing the pinned dependencies into $(VENV)"
	@$(PIP_INSTALL) -r requirements-dev.lock
	@sh -ec "$$INSTALL_SNAPAPP"
	@mv $(UNFINISHED) $(READY) && touch $(READY)

# The first Python that is new enough, really runs (a pyenv shim may exist and fail) and has venv (Debian splits it
# off). Its base executable is used, because the one found may stand in the very .venv that is about to go.
define NEW_VENV
lacks_venv=
for name in "$(PYTHON)" python3.13 python3.12 python3.11 python3; do
  base=$$("$$name" -c 'import sys; print(sys._base_executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null)
  if [ -z "$$base" ]; then
    [ -z "$$name" ] || [ "$$name" != "$(PYTHON)" ] || echo "PYTHON=$$name is no Python 3.11 or newer that runs; looking further" >&2
  elif ! "$$base" -c 'import ensurepip, venv' 2>/dev/null; then
    lacks_venv=$${lacks_venv:-$$base}
  else
    echo "Making $(VENV) with $$("$$base" --version), $$base"
    rm -rf $(VENV) && mkdir $(VENV) && : >$(UNFINISHED) && exec "$$base" -m venv $(VENV)
    exit 1
  fi
done
[ "$$(id -u)" = 0 ] || sudo='sudo '
if [ -n "$$lacks_venv" ]; then
  package=$$("$$lacks_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  echo "$$lacks_venv comes without venv. On Debian or Ubuntu, type this and try again:" >&2
  echo "    $${sudo}apt install $$package" >&2
else
  echo "snapapp needs Python 3.11 or newer and found none that runs. Install one and try again:" >&2
  echo "    $${sudo}apt install python3 python3-venv    (macOS: brew install python)" >&2
  echo "or say where it is: make setup PYTHON=/path/to/python3" >&2
fi
exit 1
endef
export NEW_VENV

# snapapp itself, by hand: an editable install by hatchling needs one more package and copies migrations/ to where
# they go stale. Both files find the project from where they stand, so the folder can be moved.
define INSTALL_SNAPAPP
packages=$$($(PYTHON_BIN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo ../../../.. >"$$packages/snapapp.pth"
printf '%s\n' "$$COMMAND" >$(VENV)/bin/snapapp
chmod +x $(VENV)/bin/snapapp
endef
export INSTALL_SNAPAPP

# sh reads the third line as exec, Python reads it as a string. The guard is for spawned children, which import this.
define COMMAND
#!/bin/sh
# -*- coding: utf-8 -*-
'''exec' "$$(dirname "$$(readlink -f "$$0")")/python" "$$0" "$$@"
' '''
if __name__ == "__main__":
    import sys

    from snapapp.__main__ import main

    sys.exit(main())
endef
export COMMAND
