"""Python on a disk that is soon full."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import ROOT


def run(
    code: str, folder: Path, size: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the code, whose first argument is the folder, with a disk of this size there that only it sees. Skips where
    the kernel lets nobody mount one."""
    mount = f'mount -t tmpfs -o size={size} none "$1" && exec "$0" -c "$2" "$1"'
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    argv = [*apart, sys.executable, str(folder), code]
    result = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if "unshare:" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"there is no small disk: {result.stderr.strip()}")
    return result
