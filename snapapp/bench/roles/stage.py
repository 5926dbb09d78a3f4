"""A role's side of `players.Player`: lines of JSON on stdin and stdout."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any


def told() -> dict[str, Any]:
    """The next thing that the bench says. It having gone means that nobody wants us any more."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    said: dict[str, Any] = json.loads(line)
    return said


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def stay() -> None:
    """Until the bench ends us: it still reads what our connections cost the server."""
    while True:
        told()


class Spent:
    """The CPU time of this process since now."""

    def __init__(self) -> None:
        self._from = process_time()

    def cpu(self) -> float:
        return process_time() - self._from


def memory() -> dict[str, float]:
    """Resident MiB of this process: all of it (rss), and with shared pages counted by share (pss)."""
    found = {}
    with suppress(OSError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("Rss", "Pss"):
                found[name.lower()] = int(rest.split()[0]) / 1024
    return found
