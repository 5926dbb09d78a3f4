"""Outlives us by a moment: when this process is gone, however it went, it kills every process group left behind.

PDEATHSIG is not enough: it reaches the child, not what the child has started, and a program of a `command` job not at
all. The guard is a shell that waits for the end of its input, which only we hold open; it costs 1 MB. The groups
stand in memory that it shares with us, because waking it for each of them took 0.1 ms.
"""

import mmap
import subprocess
import tempfile
from threading import Lock

_LINE = 12  # bytes: a number and a line feed
_BLANK = b" " * (_LINE - 1) + b"\n"
_LINES = 4096
_SCRIPT = """
trap '' TERM INT HUP QUIT
read -r _
while read -r group; do
  [ -z "$group" ] || kill -9 "-$group"
done <&1
"""


class Guard:
    """`watch` a group as soon as it is started, `forget` it before its number may go to somebody else."""

    def __init__(self) -> None:
        self._lock = Lock()  # the slots come here at any time
        self._free = list(range(_LINES))
        self._line_of: dict[int, int] = {}
        self._shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        with self._lock:
            if self._shell is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
                self._file.write(_BLANK * _LINES)
                self._file.flush()
                self._map = mmap.mmap(self._file.fileno(), _LINE * _LINES)
                self._start()
            elif self._shell.poll() is not None:  # somebody killed it
                self._end_shell()
                self._start()
            line = self._line_of[group] = self._free.pop()
            self._write(line, b"%11d\n" % group)

    def forget(self, group: int) -> None:
        with self._lock:
            line = self._line_of.pop(group, None)
            if line is not None:
                self._write(line, _BLANK)
                self._free.append(line)

    def stop(self) -> None:
        """What is still watched is killed, as it would be at our death."""
        with self._lock:
            if self._shell:
                self._end_shell()
                self._shell = None
                self._line_of.clear()
                self._map.close()
                self._file.close()

    def _write(self, line: int, text: bytes) -> None:
        self._map[_LINE * line : _LINE * (line + 1)] = text

    def _start(self) -> None:
        self._file.seek(0)  # the shell reads from where we stand
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=self._file,  # to be read: dash knows no file by a number above 9
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,  # Ctrl-C is not for it
            bufsize=0,
        )

    def _end_shell(self) -> None:
        assert self._shell
        assert self._shell.stdin
        self._shell.stdin.close()
        self._shell.wait()
