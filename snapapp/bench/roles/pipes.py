"""The counterpart of BenchProcess in the role's process: it reads and writes lines of JSON on stdin and stdout."""

import json
import os
import sys
from typing import Any


def read() -> dict[str, Any]:
    """The next line that the bench sends. If the bench has ended, this process ends too."""
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    facts: dict[str, Any] = json.loads(line)
    return facts


def say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def stay() -> None:
    """Keeps the process and its connections until the bench ends it: the bench still reads the server's CPU time."""
    while True:
        read()
