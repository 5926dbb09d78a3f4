"""The environment variables of processes that we start."""

import os
import sys
from pathlib import Path

_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


def plain() -> dict[str, str]:
    """The variables that a Python process of ours needs, without our secrets, which a crash could print."""
    variables = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return variables | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
