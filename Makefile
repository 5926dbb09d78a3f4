# What people type. It needs make (GNU, 3.81 or newer) and Python 3.11 or newer, nothing else.
# Paths are relative on purpose: the folder may be called anything, with blanks too.
SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup run dev test check format demo psql bench chaos mutants peers telemetry docs lock clean

VENV := .venv
PYTHON_BIN := $(VENV)/bin/python
READY := $(VENV)/.ready# what it takes to run is installed; younger than what that was made from
READY_DEV := $(VENV)/.ready-dev# and what it takes to test and check
UNFINISHED := $(VENV)/.unfinished# there while something is installed; found at a start, it means start over

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: $(READY_DEV) ## make .venv with all pinned dependencies; instant when it is there
	@:

run: $(READY) ## start everything and show its URL; installs only what that takes
	@exec $(VENV)/bin/snapapp serve $(ARGS)

dev: $(READY) ## the same, and start anew when a file of the code changes
	@exec $(VENV)/bin/snapapp serve --reload $(ARGS)

# Some container images forbid bytecode: then each process that a test begins would compile all of snapapp again.
test: $(READY_DEV) ## run every test; ARGS="-k lease" runs some
	@env -u PYTHONDONTWRITEBYTECODE $(PYTHON_BIN) -m tests.side_by_side $(ARGS)

check: $(READY_DEV) ## lint, formatting, types, import contracts
	$(PYTHON_BIN) -m ruff check
	$(PYTHON_BIN) -m ruff format --check
	$(PYTHON_BIN) -m mypy
	$(VENV)/bin/lint-imports

format: $(READY_DEV) ## put the code into shape
	$(PYTHON_BIN) -m ruff check --fix
	$(PYTHON_BIN) -m ruff format

demo: $(READY) ## prepare the demo video and its three snaps anew, where they are missing
	@exec $(VENV)/bin/snapapp demo $(ARGS)

psql: $(READY) ## open psql on the database in use
	@exec $(VENV)/bin/snapapp psql $(ARGS)

bench: $(READY) ## measure the queue on this machine
	@exec $(VENV)/bin/snapapp bench $(ARGS)

chaos: $(READY_DEV) ## break things on purpose and look for lost jobs
	@exec $(PYTHON_BIN) -m tests.labs chaos $(ARGS)

mutants: $(READY_DEV) ## plant known defects in a copy: the tests must notice each; writes docs/mutants.md
	@exec $(PYTHON_BIN) -m tests.labs mutants $(ARGS)

peers: $(READY_DEV) ## install the other queues that bench can compare with
	@sh -ec "$$INSTALL" sh requirements-peers.lock compile "other queues"

telemetry: $(READY) ## install what sends traces to a collector: docs/operate/traces.md
	@sh -ec "$$INSTALL" sh requirements-telemetry.lock compile "what sends traces"

docs: $(READY_DEV) ## write what is made from code: settings.md, events.md, requirements.md, operate/, the pictures of the packages
	@$(PYTHON_BIN) -m tests.docs.settings_page
	@$(PYTHON_BIN) -m tests.docs.events_page
	@$(PYTHON_BIN) -m tests.docs.requirements
	@$(PYTHON_BIN) -m tests.docs.troubleshooting_page
	@$(PYTHON_BIN) -m tests.docs.monitoring_page
	@$(PYTHON_BIN) -m tests.docs.imports_picture

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --extra product --extra server pyproject.toml

lock: ## pin the dependencies anew (needs uv); ARGS=--upgrade takes newer ones
	@command -v uv >/dev/null || { echo "make lock needs uv; one way to get it: pipx install uv" >&2; exit 1; }
	$(COMPILE) $(ARGS) -o requirements.lock
	$(COMPILE) $(ARGS) --extra dev --extra compute --extra telemetry -c requirements.lock -o requirements-dev.lock
	echo pip | $(filter-out --extra product server pyproject.toml,$(COMPILE)) $(ARGS) -o requirements-pip.lock -
	$(COMPILE) $(ARGS) --extra telemetry -c requirements-dev.lock -o requirements-telemetry.lock
	$(COMPILE) $(ARGS) --extra peers -c requirements-dev.lock -o requirements-peers.lock

clean: ## remove .venv and every cache; never var, where the data is
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find snapapp tests migrations -name __pycache__ -prune -exec rm -rf {} +

# --- Set-up -------------------------------------------------------------------------------------------------

# Without its Python (removed, upgraded away) a virtual environment is none, whatever its age. Not $(wildcard), which
# is content with a link that leads nowhere.
ifneq ($(shell test -x $(PYTHON_BIN) || echo gone),)
.PHONY: $(READY) $(READY_DEV)
endif

$(READY): requirements.lock pyproject.toml Makefile
	@rm -f $(READY)
	@[ ! -e $(UNFINISHED) ] && $(PYTHON_BIN) -c '' 2>/dev/null || sh -c "$$NEW_VENV"
	@: >$(UNFINISHED)
	@sh -ec "$$INSTALL" sh requirements.lock compile "what it takes to run"
	@sh -ec "$$INSTALL_SNAPAPP"
	@mv $(UNFINISHED) $(READY) && touch $(READY)

$(READY_DEV): $(READY) requirements-dev.lock
	@rm -f $(READY_DEV)
	@mv $(READY) $(UNFINISHED)
	@sh -ec "$$INSTALL" sh requirements-dev.lock no-compile "what it takes to test and check"
	@mv $(UNFINISHED) $(READY) && touch $(READY) && touch $(READY_DEV)

# uv where there is one, because it takes a third of the time. It may be set up for other places than pip is.
# Else a pip of today, two of it side by side, and nothing to resolve, because a lock is complete: the pip that comes with
# Python looks for a minute at files of other machines and versions. xargs, because what a shell begins with & is deaf to
# Ctrl-C.
# What runs is compiled at once: where its user may not write, each start would compile it anew. All processors do so;
# pip would take one. What tests and checks need compiles itself when it is first imported, which saves twelve of thirty
# seconds.
define INSTALL
with=pip
! command -v uv >/dev/null 2>&1 || with=uv
echo "Installing $$3 into $(VENV) with $$with: $$(grep -c == "$$1") pinned packages, once"
if [ $$with = uv ]; then
  ! uv pip install --$$2 --quiet --python $(PYTHON_BIN) --require-hashes --only-binary :all: -r "$$1" || exit 0
  echo "uv failed, so pip" >&2
fi
$(PYTHON_BIN) -m pip --version >/dev/null 2>&1 || $(PYTHON_BIN) -m ensurepip >/dev/null
pip="$(PYTHON_BIN) -m pip install --no-compile --quiet --disable-pip-version-check --no-input --no-deps
  --require-hashes --only-binary :all: -r"
$$pip requirements-pip.lock || echo "going on with the pip that came with Python" >&2
awk -v to=$(VENV)/.half- '/^[^ #]/ {its++} {print >(to its % 2)}' "$$1"
printf '%s\n' $(VENV)/.half-0 $(VENV)/.half-1 | xargs -n 1 -P 2 $$pip
rm -f $(VENV)/.half-?
[ $$2 = no-compile ] || $(PYTHON_BIN) -m compileall -qq -j 0 $(VENV)/lib/python*/site-packages || true
endef
export INSTALL

# The first Python that is new enough, really runs (a pyenv shim may exist and fail) and has venv (Debian splits it
# off; uv makes one without). Its base executable is used, because the one found may stand in the very .venv that is
# about to go.
define NEW_VENV
lacks_venv= found=
for name in "$(PYTHON)" python3.13 python3.12 python3.11 python3 "$$(uv python find '>=3.11' 2>/dev/null)"; do
  [ -n "$$name" ] || continue
  base=$$("$$name" -c 'import sys; print(sys._base_executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null)
  if [ -z "$$base" ]; then
    old=$$("$$name" -c 'import sys; print("Python %d.%d.%d, %s" % (sys.version_info[:3] + (sys.executable,)))' 2>/dev/null) &&
      found="$$found$${found:+; }$$old"
    [ "$$name" != "$(PYTHON)" ] || echo "PYTHON=$$name is no Python 3.11 or newer that runs; looking further" >&2
  elif ! "$$base" -c 'import ensurepip, venv' 2>/dev/null && ! command -v uv >/dev/null 2>&1; then
    lacks_venv=$${lacks_venv:-$$base}
  else
    echo "Making $(VENV) with $$("$$base" --version), $$base"
    rm -rf $(VENV) && mkdir $(VENV) && : >$(UNFINISHED) || exit 1
    if "$$base" -c 'import ensurepip, venv' 2>/dev/null; then exec "$$base" -m venv $(VENV); fi
    exec uv venv --quiet --allow-existing --python "$$base" $(VENV)
  fi
done
[ "$$(id -u)" = 0 ] || sudo='sudo '
if [ -n "$$lacks_venv" ]; then
  package=$$("$$lacks_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  echo "$$lacks_venv comes without venv. On Debian or Ubuntu, type this and try again:" >&2
  echo "    $${sudo}apt install $$package" >&2
else
  echo "snapapp needs Python 3.11 or newer. Found: $${found:-none that runs}. Install a newer one and try again:" >&2
  echo "    $${sudo}apt install python3 python3-venv    (Debian 12, Ubuntu 23.04 or newer; macOS: brew install python)" >&2
  echo "    uv python install 3.12                      (anywhere, beside the old one; https://docs.astral.sh/uv)" >&2
  echo "or say where it is: make run PYTHON=/path/to/python3" >&2
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
