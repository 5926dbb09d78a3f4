"""A video of random bytes, and what reading it ends in."""

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from snapapp.errors import SnapError
from snapapp.sources import SourceError
from snapapp.sources.cache import BLOCK
from tests.sources.conftest import Open
from tests.sources.server import Visit

CONTENT = random.Random(1).randbytes(5 * BLOCK + 12_345)

SHORT = timedelta(milliseconds=400)


def error_of(opened: Open, path: str = "/v", **limits: object) -> SourceError:
    """Of opening and reading it all."""
    with pytest.raises(SourceError) as caught:
        opened(path, **limits).read()
    assert isinstance(caught.value, SnapError)
    assert str(caught.value).endswith(".")
    return caught.value


def chunked(pieces: Iterator[bytes]) -> Any:
    def act(visit: Visit) -> None:
        visit.head(200, Transfer_Encoding="chunked")
        visit.drip((b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), every=0)

    return act
