"""FFmpeg reading through the file, with pictures compared to those of the local one."""

from pathlib import Path
from typing import BinaryIO, cast

import av
import pytest

from snapapp.sources import Reason, SourceUnavailable
from snapapp.sources.cache import BLOCK
from tests.labs.sources import lab
from tests.sources import videos
from tests.sources.conftest import Open
from tests.sources.server import Film, Server


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("videos") / "few.mp4"
    videos.encode(path, mbit=4)
    return path


@pytest.mark.at_length  # test_remote compares the bytes in every run
@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
@pytest.mark.parametrize("honours_ranges", [True, False])
def test_pictures_are_those_of_the_local_file(
    server: Server, opened: Open, few: Path, tmp_path: Path, suffix: str, honours_ranges: bool
) -> None:
    """S28: whatever the container, and whether or not the server knows ranges."""
    path = tmp_path / f"many.{suffix}"
    videos.repeat(few, path, 8_000_000)
    server.acts["/v"] = Film(path.read_bytes(), honours_ranges=honours_ranges)
    shown = videos.moment(cast(BinaryIO, opened("/v")), 6.5, 0.5)
    assert shown == videos.moment(path, 6.5, 0.5)
    assert len(shown) == 15


def test_what_the_source_says_comes_through_the_decoder(server: Server, opened: Open, few: Path) -> None:
    server.acts["/v"] = film = Film(few.read_bytes())
    file = opened("/v")
    assert len(film.content) > 3 * BLOCK
    film.etag = '"2"'
    with pytest.raises(SourceUnavailable) as caught:
        videos.moment(cast(BinaryIO, file), 1, 1)
    assert caught.value.reason is Reason.CHANGED


def test_what_is_no_video_is_the_decoders_to_say(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(b"<!doctype html><title>Sign in</title>" * 100)
    with pytest.raises(av.error.InvalidDataError):
        videos.moment(cast(BinaryIO, opened("/v")), 0, 1)


@pytest.mark.at_length  # test_remote counts what a jump fetches, in every run
@pytest.mark.timeout(300)
def test_a_moment_of_a_long_video_costs_a_small_part_of_it_and_a_second_snap_nothing() -> None:
    """media.md: at most a hundredth of 1 GB; here of 60 MB, in full with `python -m tests.labs sources`."""
    for cost in lab.run(60_000_000, moments=1):
        assert cost.pictures == 2 * videos.RATE
        assert cost.requests <= lab.MOST_REQUESTS
        assert cost.bytes < 8_000_000
        assert cost.again == (1, 1)
