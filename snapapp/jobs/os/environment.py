"""The environment variables of processes that we start."""

import os
import sys
from collections.abc import Collection
from pathlib import Path

_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


def plain() -> dict[str, str]:
    """The variables that a Python process of ours needs, without our secrets, which a crash could print."""
    return kept(_KEPT) | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}


def kept(names: Collection[str]) -> dict[str, str]:
    """These variables, and those that say in which language a program speaks."""
    return {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
