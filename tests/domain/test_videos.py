"""Videos: one for each URL of a tenant, one for the same bytes."""

import unicodedata
from time import monotonic
from uuid import uuid4

import pytest
from sqlalchemy.orm import Session

from snapapp.domain import videos
from snapapp.domain.finding.paging import Window
from snapapp.errors import Invalid, VideoNotFound
from tests.domain.making import OWN, an_upload
from tests.factory import ago

URL = "https://example.org/a.mp4"


def test_a_url_is_one_video_however_often_it_is_named(own: Session) -> None:
    """S31."""
    video = videos.resolve(own, OWN, video_id=None, video_url=URL)
    assert (video.url, video.is_upload, video.probe) == (URL, False, None)
    assert videos.resolve(own, OWN, video_id=None, video_url=URL) == video
    assert videos.resolve(own, OWN, video_id=video.id, video_url="https://example.org/other.mp4") == video
    assert videos.at_url(own, OWN, URL + "?x").id != video.id


@pytest.mark.parametrize("given", [None, ""])
def test_a_video_must_be_named_somehow(own: Session, given: str | None) -> None:
    with pytest.raises(Invalid, match=r"^Provide at least one of videoId or videoUrl$"):
        videos.resolve(own, OWN, video_id=None, video_url=given)


def test_a_video_that_is_not_there_is_named(own: Session) -> None:
    nowhere = uuid4()
    for touch in (lambda: videos.read(own, OWN, nowhere), lambda: videos.set_probe(own, OWN, nowhere, {})):
        with pytest.raises(VideoNotFound) as raised:
            touch()
        assert str(raised.value) == f"Video not found: {nowhere}"


def test_what_was_found_in_a_video_is_kept(own: Session) -> None:
    video = videos.at_url(own, OWN, URL)
    videos.set_probe(own, OWN, video.id, {"width": 1920, "reason": None})
    assert videos.read(own, OWN, video.id).probe == {"width": 1920, "reason": None}


def test_the_same_bytes_are_kept_once(own: Session) -> None:
    """FE3."""
    upload = an_upload(b"film", file_name="../../etc/passwd")
    video = videos.add_upload(own, OWN, upload)
    assert (video.id, video.size_bytes, video.sha256) == (upload.id, 4, upload.sha256)
    assert (video.url, video.is_upload, video.file_name) == (None, True, "../../etc/passwd")
    assert videos.add_upload(own, OWN, an_upload(b"film")) == video
    assert videos.add_upload(own, OWN, an_upload(b"other")).id != video.id


def test_videos_are_listed_newest_first(own: Session) -> None:
    made = [videos.at_url(own, OWN, f"https://example.org/{name}.mp4").id for name in "abc"]
    for minutes, video_id in enumerate(made):
        values = {"at": ago(minutes=minutes), "id": video_id}
        own.connection().exec_driver_sql("UPDATE video SET created_at = %(at)s WHERE id = %(id)s", values)
    page = videos.page(own, OWN, Window(limit=2))
    assert ([video.id for video in page.items], page.has_more) == (made[:2], True)
    rest = videos.page(own, OWN, Window(offset=2))
    assert ([video.id for video in rest.items], rest.has_more) == (made[2:], False)
    for sort_by in ("createdAt", "fileName", "sizeBytes"):
        assert len(videos.page(own, OWN, Window(sort_by=sort_by)).items) == 3


def test_a_video_is_found_by_its_name_or_its_url(own: Session) -> None:
    """In any case; and what has a meaning for LIKE means itself."""
    videos.add_upload(own, OWN, an_upload(id=uuid4(), file_name="Brete 100%.mp4", sha256="a" * 64))
    videos.add_upload(own, OWN, an_upload(id=uuid4(), file_name="Curral.mp4", sha256="b" * 64))
    videos.at_url(own, OWN, "https://example.org/brete-7.mp4")
    for wanted, count in [("bRETE", 2), ("0%.", 1), ("%", 1), ("_", 0), ("\\", 0), ("example.org", 1), ("curral", 1)]:
        assert len(videos.page(own, OWN, q=wanted).items) == count, wanted


def test_a_name_is_found_however_its_accents_are_composed(own: Session) -> None:
    """A Mac may write the tilde in a file's name as a character of its own; whoever types a name types one letter."""
    as_typed = "Câmera São João.mp4"
    for digit, name in (("a", as_typed), ("b", unicodedata.normalize("NFD", as_typed))):
        videos.add_upload(own, OWN, an_upload(id=uuid4(), file_name=name, sha256=digit * 64))
    for wanted in ("são joão", unicodedata.normalize("NFD", "são joão")):
        assert len(videos.page(own, OWN, q=wanted).items) == 2, wanted


def test_accents_without_an_end_in_a_url_keep_no_search_waiting(own: Session) -> None:
    """PostgreSQL puts them in order in the square of their number: each such URL took 0.2 s of every search."""
    for number in range(5):
        videos.at_url(own, OWN, f"https://example.org/{number}" + "\u0301" * 2030 + "\u0316" * 2030)
    began = monotonic()
    assert len(videos.page(own, OWN, q="example.org").items) == 5
    assert monotonic() - began < 0.5
