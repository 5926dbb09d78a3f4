"""Waiting for file descriptors, in a process that has more of them than `select` knows numbers for."""

import fcntl
import os
import resource
from collections.abc import Iterator

import pytest

from snapapp.jobs.os.waiting import readable

HIGH = 1100


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its end to read has a number that `select` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= HIGH:
        pytest.skip(f"a process may have {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 1), hard))
    low, write = os.pipe()
    read = fcntl.fcntl(low, fcntl.F_DUPFD, HIGH)
    yield read, write
    for each in (low, read, write):
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_may_have_any_number(pipe: tuple[int, int]) -> None:
    read, write = pipe
    assert readable(read, within=0) == set()
    assert readable(read, within=0.001) == set()
    os.write(write, b"!")
    assert readable(read, within=None) == {read}


def test_only_those_that_have_something_to_say_are_named(pipe: tuple[int, int]) -> None:
    read, write = pipe
    other, end = os.pipe()
    assert readable(read, other, within=0) == set()
    os.close(end)
    assert readable(read, other, within=None) == {other}, "an end is to be heard of, too"
    os.write(write, b"!")
    assert readable(read, other, within=None) == {read, other}
    os.close(other)
