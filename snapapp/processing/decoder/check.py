"""The doctor's check that this machine can shut decoders in."""

from collections.abc import Iterator

from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity
from snapapp.processing.decoder import sandbox

NAME = "decoders"


def check(_: ExaminedDatabase | None = None) -> Iterator[Finding]:
    missing = sandbox.missing()
    if "seccomp" in missing:
        yield Finding(
            id="DECODERS_OPEN",
            severity=Severity.WARNING,
            saw=f"Nothing shuts decoders in: this machine has no {' and no '.join(missing)}.",
            why="A video that takes its decoder over reads what the service's user can: settings, the database, files.",
            do="Run workers on Linux, x86_64 or aarch64, with a kernel and a container that allow seccomp filters.",
        )
    elif missing:
        yield Finding(
            id="DECODERS_ONE_WALL",
            severity=Severity.NOTICE,
            saw="Decoders are shut in by seccomp alone: this kernel has no Landlock.",
            why="seccomp leaves a decoder nothing but the files that it was handed; Landlock would stand behind it.",
            do="Nothing need be done. Kernels since 5.13 have it, where it is among the security modules of the boot.",
        )
    else:
        yield Finding(id="DECODERS", saw="Decoders are shut in by seccomp, and by Landlock behind it.")


def in_one_line() -> str | None:
    """What is missing, in one line for the log and for `check-deploy`; None if nothing is missing."""
    its = next(check())
    return None if its.severity is Severity.OK else its.saw[0].lower() + its.saw[1:].rstrip(".")
