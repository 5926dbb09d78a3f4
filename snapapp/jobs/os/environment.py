"""The environment of what we start."""

import os
import sys
from pathlib import Path

_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"})


def plain() -> dict[str, str]:
    """What a Python of ours needs to run, and none of our secrets: so no crash or message tells them."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}
    return kept | {"PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)}
