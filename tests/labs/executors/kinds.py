"""Job kinds for every executor: good ones, and every way to go wrong that we know, each with the reason it ends by."""

import asyncio
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from snapapp.jobs import Job
from snapapp.jobs.executors import messages
from snapapp.jobs.registry import ExecutorName, Registry

LIMIT_MB = 120  # of the kinds whose memory matters; a second attempt has twice as much
LATE = timedelta(milliseconds=500)
MB = 1024 * 1024
F = TypeVar("F", bound=Callable[..., Any])

# Slow enough for a look at it, quick enough for a test.
HOARDING = "import time; kept = [time.sleep(0.03) or bytes([1]) * 10_485_760 for _ in range(40)]"

HOARD: list[bytes] = []

registry = Registry()
released = threading.Event()  # lets threads go that ignore their deadline, at the end
GOOD = [
    *("thread.good", "async.good", "process.good", "process.flood", "process.chatter", "process.litter"),
    *("command.good", "command.deaf", "command.echo", "command.litter", "command.lines"),
]
BAD: dict[str, str] = {}  # kind -> what its last error says


def bad(kind: str, reason: str, executor: ExecutorName | None = None, **options: Any) -> Callable[[F], F]:
    BAD[kind] = reason
    return registry.processor(kind, executor=executor, **options)


# --- threads and coroutines -------------------------------------------------------------------------------------


@registry.processor("thread.good")
def think(job: Job) -> int:
    return sum(range(1000))


@bad("thread.raise", "ValueError: oops")
def fail(job: Job) -> None:
    raise ValueError("oops")


@bad("thread.stuck", "did not stop; its thread was given up", timeout=LATE)
def hang(job: Job) -> None:
    released.wait(600)


@registry.processor("async.good")
async def doze(job: Job) -> str:
    await asyncio.sleep(0.01)
    return "rested"


@bad("async.late", "JobTimeout: async.late ran", timeout=LATE)
async def oversleep(job: Job) -> None:
    await asyncio.sleep(600)


# --- children ---------------------------------------------------------------------------------------------------


@registry.processor("process.good", executor="process")
def compute(job: Job) -> int:
    return os.getpid()


@registry.processor("process.flood", executor="process")
def flood(job: Job) -> str:
    for _ in range(2000):
        os.write(1, b"all work and no play " * 50)
        os.write(2, b"makes a long line of text\n" * 50)
    return "done"


@registry.processor("process.chatter", executor="process")
def chatter(job: Job) -> str:
    for number in range(3000):
        job.log(f"line {number}")
        job.update_progress(number % 100)
    return "done"


@registry.processor("process.litter", executor="process")
def leave_somebody_behind(job: Job) -> int:
    return subprocess.Popen(["sleep", "600"]).pid


@registry.processor("process.brooding", executor="process")
def wait_with_a_grandchild(job: Job) -> None:
    grandchild = subprocess.Popen(["sleep", "600"])
    job.log(f"{os.getpid()} {grandchild.pid}")
    grandchild.wait()


@registry.processor("process.whisper", executor="process")
def leave_a_voice_behind(job: Job) -> int:
    def whisper() -> None:
        while True:
            job.log("psst")
            time.sleep(0.001)

    threading.Thread(target=whisper, daemon=True).start()
    return os.getpid()


@registry.processor("process.fat", executor="process")
def keep_what_it_had(job: Job) -> int:
    HOARD.append(b"x" * (50 * MB))
    return os.getpid()


@bad("process.segfault", "the child process was killed by SIGSEGV", "process")
def segfault(job: Job) -> None:
    ctypes.string_at(0)


@bad("process.exit", "the child process exited with code 7\nfamous last words", "process")
def leave(job: Job) -> None:
    os.write(2, b"famous last words\n")
    os._exit(7)


@bad("process.suicide", "the child process was killed by SIGKILL, which was not sent by the worker", "process")
def kill_myself(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@bad("process.deaf", "the child process exited with code 1", "process")
def close_everything(job: Job) -> None:
    os.closerange(3, 100)


@bad("process.python", "was killed at its time limit", "process", timeout=LATE)
def loop_in_python(job: Job) -> None:
    while True:
        pass


@bad("process.c", "was killed at its time limit", "process", timeout=LATE)
def loop_in_c(job: Job) -> None:
    """Holds the GIL for ever."""
    deque(itertools.repeat(0), maxlen=0)


@bad("process.halfway", "was killed at its time limit", "process", timeout=LATE)
def speak_half_a_message(job: Job) -> None:
    os.write(int(sys.argv[2]), b"\0\0\1\0{")
    time.sleep(600)


@bad("process.babble", "a message of 1634428517 bytes", "process")
def babble(job: Job) -> None:
    os.write(int(sys.argv[2]), b"akfe, nothing that was agreed upon")
    time.sleep(600)


@bad("process.forger", "JSONDecodeError: Expecting value", "process")
def forge_progress(job: Job) -> None:
    messages.write(int(sys.argv[2]), {"lease": list(job.lease), "progress": "}{"})
    time.sleep(600)


@bad("process.liar", "ValueError: the child's result is not what a child sends", "process")
def forge_a_result(job: Job) -> None:
    messages.write(int(sys.argv[2]), {"lease": list(job.lease), "done": {"not": "text"}})
    time.sleep(600)


@bad("process.pill", "MB of memory and was killed: its limit is ", "process", memory_mb=LIMIT_MB)
def grow(job: Job) -> None:
    exec(HOARDING)


@bad("process.gulp", "was refused more memory: its limit is ", "process", memory_mb=LIMIT_MB)
def gulp(job: Job) -> None:
    bytearray(4096 * MB)


@bad("process.brood", "MB of memory and was killed: its limit is ", "process", memory_mb=LIMIT_MB)
def let_a_grandchild_grow(job: Job) -> None:
    subprocess.run([sys.executable, "-c", HOARDING], check=True)


@bad("process.odd", "InvalidJob: the result is not JSON", "process")
def answer_oddly(job: Job) -> object:
    return threading.Lock()


@bad("process.giant", "InvalidJob: the result has 8388610 bytes", "process")
def answer_at_length(job: Job) -> str:
    return "x" * 8 * MB


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    def __reduce__(self) -> Any:
        raise TypeError("nor can it be pickled")


@bad("process.unspeakable", "Unspeakable: (its text cannot be read: RuntimeError)", "process")
def raise_the_unspeakable(job: Job) -> None:
    raise Unspeakable(threading.Lock())


@bad("process.litany", "ValueError: xxxx", "process")
def raise_at_length(job: Job) -> None:
    raise ValueError("x" * 50 * MB)


# --- commands ---------------------------------------------------------------------------------------------------


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def program(kind: str, script: str, reason: str | None = None, **options: Any) -> None:
    if reason is not None:
        BAD[kind] = reason

    @registry.processor(kind, executor="command", command=shell(script), **options)
    def run(job: Job) -> None: ...


ANSWER = """echo '{"ok": true, "result": "done"}'"""

program("command.good", f"read -r _; {ANSWER}")
program("command.deaf", f"exec 0<&-; {ANSWER}")
program("command.exit", "echo 'no disk' >&2; exit 3", "CommandFailed: /bin/sh exited with code 3\nno disk")
program("command.suicide", "kill -9 $$", "CommandKilled: /bin/sh was killed by SIGKILL, which was not sent by")
program("command.abort", "kill -ABRT $$", "CommandKilled: /bin/sh was killed by SIGABRT")
program("command.mute", "exit 0", "CommandAnswerInvalid: /bin/sh did not answer with the envelope: it wrote nothing")
program("command.babble", "echo hello", "CommandAnswerInvalid: /bin/sh did not answer with the envelope: Expecting")
program("command.list", "echo '[1]'", """CommandAnswerInvalid: /bin/sh did not answer with the envelope: no "ok\"""")
program("command.flood", "yes | head -c 9000000", "it wrote more than 1052672 bytes: 'y\\ny")
program("command.noise", "yes >&2 & sleep 600", "was killed at its time limit", timeout=LATE)
program("command.spin", "while :; do :; done", "was killed at its time limit", timeout=LATE)
program("command.closed", "exec >&- 2>&-; sleep 600", "was killed at its time limit", timeout=LATE)
program(
    "command.refuses",
    """echo '{"ok": false, "error_class": "NoVideo", "message": "no stream", "traceback": "line 7"}'""",
    "NoVideo: no stream",
)
program(
    "command.pill",
    f"exec {sys.executable} -c '{HOARDING}'",
    "MB of memory and was killed: its limit is ",
    memory_mb=LIMIT_MB,
)

program("command.echo", """printf '{"ok": true, "result": '; cat; echo '}'""")
program(
    "command.environment", """printf '{"ok": true, "result": "%s"}' "$(env | cut -d= -f1 | sort | tr '\\n' ' ')\""""
)
program("command.folder", """touch "$TMPDIR/x"; printf '{"ok": true, "result": "%s %s"}' "$PWD" "$(ls | wc -l)\"""")
program("command.brooding", "sleep 600 & echo $$ $! >&2; wait")
program("command.litter", f"sleep 600 & echo $! >&2; {ANSWER}")
program("command.contrary", f"{ANSWER}; echo 'not at all' >&2; exit 4", "exited with code 4, although it said ok")
program("command.lines", f"seq 1 3000 >&2; {ANSWER}")


@bad("command.missing", "CommandMissing: there is no program 'no-such-program'", "command", command=["no-such-program"])
def missing(job: Job) -> None: ...


@bad("command.computed", "CommandNotAllowed: the program 'true' is not on SNAPAPP_COMMAND_ALLOW", "command")
def computed(job: Job) -> list[str]:
    return ["true"]
