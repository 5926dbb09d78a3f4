"""Errors that say what this machine or process lacks, and nothing about the job or the row at hand."""

import errno

_SHORT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS}


def is_shortage(error: BaseException) -> bool:
    """Of descriptors, memory, processes or threads: later the same may end well."""
    cause = getattr(error, "orig", error)
    if isinstance(cause, OSError):
        return cause.errno in _SHORT_OF
    return isinstance(cause, MemoryError) or is_lack_of_threads(cause)


def is_lack_of_threads(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)
