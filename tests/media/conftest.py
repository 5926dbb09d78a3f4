from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.media.material import GOOD, Interval, decoded_whole, make

Video = Callable[[str], Path]
Whole = Callable[[str], list[Interval]]


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Video:
    """A video of this kind, made once."""
    folder = tmp_path_factory.mktemp("videos")
    return cache(lambda kind: make(GOOD[kind], folder / (kind + GOOD[kind].suffix)))


@pytest.fixture(scope="session")
def whole(video: Video) -> Whole:
    """All its frames, decoded from the first to the last by the plainest means."""
    return cache(lambda kind: decoded_whole(video(kind), GOOD[kind].rotation))
