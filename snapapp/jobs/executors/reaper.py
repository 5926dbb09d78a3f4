"""The guard: a small process that kills every process group of this worker once the worker is gone.

PDEATHSIG is not enough: it kills a child, but not what the child has started, nor the program of a `command` job. The
guard is a shell of 1 MB that waits for the end of its standard input, which only the worker holds open. The worker
writes the groups into a shared file, because waking the shell for each group took 0.1 ms.
"""

import mmap
import os
import subprocess
import tempfile
from threading import Lock

from snapapp.jobs.os import forks

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
    """`watch` a group when it is started; `forget` it before its pid is reaped and may be given to another process."""

    def __init__(self) -> None:
        self._lock = Lock()  # every slot calls `watch` and `forget`
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
            elif self._shell.poll() is not None:  # the shell was killed
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
        """Ends the guard, which kills the groups that are still watched."""
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
        self._file.seek(0)  # the shell inherits our position in the file
        reading, self._our_end = os.pipe()
        forks.keep_end(self._our_end)
        try:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=reading,
                stdout=self._file,  # the shell reads from it: dash cannot use descriptors above 9
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,  # so that Ctrl-C does not reach it
            )
        except BaseException:
            forks.close_end(self._our_end)
            raise
        finally:
            os.close(reading)

    def _end_shell(self) -> None:
        assert self._shell
        forks.close_end(self._our_end)
        self._shell.wait()
