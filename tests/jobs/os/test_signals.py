"""Signals are noted, and at the end of a life ignored."""

import subprocess
import sys

LIFE = """
import os, signal, threading
from snapapp.jobs.os.signals import Signals

threading.Thread(target=threading.Event().wait, daemon=True).start()  # a signal may come to any thread
with Signals(signal.SIGUSR1) as signals:
    os.kill(os.getpid(), signal.SIGTERM)
    signals.wait(10)
    print(*(number.name for number in signals.take()))
    signals.ignore()
    os.kill(os.getpid(), signal.SIGUSR1)
os.kill(os.getpid(), signal.SIGTERM)
print(signals.noted)
"""


def test_a_signal_that_comes_after_the_end_changes_no_exit_code() -> None:
    life = subprocess.run([sys.executable, "-c", LIFE], capture_output=True, text=True, timeout=30, check=False)
    assert (life.stdout, life.returncode) == ("SIGTERM\n[]\n", 0), life.stderr
