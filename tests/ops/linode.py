"""The files for a box, read."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from snapapp.settings.env_file import EnvFile
from snapapp.settings.loading import load
from snapapp.settings.table import Settings
from tests import ROOT

BOX = ROOT / "ops" / "linode"

EXAMPLE = BOX / "snapapp.env.example"

TOKEN = "0123456789abcdef" * 3  # nobody's


# MB. A box of 2 GB as its kernel reports it, and what the system takes of it.
BOX_HAS, SYSTEM_TAKES = 1950, 300


def megabytes(text: str) -> int:
    number, size = re.fullmatch(r"(\d+)(MB?|GB?)", text).groups()  # type: ignore[union-attr]  # else it should fail
    return int(number) * (1024 if size[0] == "G" else 1)


def filled() -> str:
    """The example with its gaps filled in."""
    text = EXAMPLE.read_text().replace("_BASE_URL=\n", "_BASE_URL=https://snapapp.example.com\n")
    return re.sub(r"^(SNAPAPP_(?:INTERNAL_TOKEN|SIGNING_SECRET)=)$", rf"\g<1>{TOKEN}", text, flags=re.MULTILINE)


def example(**changes: str) -> Settings:
    environ = {f"SNAPAPP_{name}": value for name, value in changes.items()}
    return load(environ, EnvFile.parse(filled().encode(), "example"))


def tool(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if not found:
        pytest.skip(f"{name} is not installed")
    return found


def ran(*argv: str | Path, **options: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | options
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment, timeout=60)


def postgres_conf() -> dict[str, str]:
    lines = (BOX / "postgresql.conf.d" / "snapapp.conf").read_text().splitlines()
    entries = [line.partition("#")[0].partition("=") for line in lines]
    return {name.strip(): value.strip().strip("'") for name, is_set, value in entries if is_set}


def installer(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A line, with the installer's functions."""
    return ran("bash", "-c", f". {BOX}/install.sh; {line}", **environment)
