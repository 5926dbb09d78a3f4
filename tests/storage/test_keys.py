"""Keys that snapapp makes, from texts that others chose."""

from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.storage import NoRoom, Room, keys

VIDEO = UUID("0197a0f0-0000-7000-8000-000000000001")


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_becomes_a_segment_of_its_own(one: str, other: str) -> None:
    assert keys.is_segment(keys.segment(one))
    assert keys.checked_prefix(keys.of_video(one, VIDEO))
    assert (keys.segment(one) == keys.segment(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "segment"),
    [("default", "default"), ("a/b", "a=2Fb"), ("..", "=2E=2E"), ("ação", "a=C3=A7=C3=A3o"), ("=2F", "=3D2F")],
)
def test_a_plain_text_stays_as_it_is_and_others_are_escaped(text: str, segment: str) -> None:
    assert keys.segment(text) == segment


def test_the_keys_of_the_house() -> None:
    assert keys.of_video("fazenda/1", VIDEO) == f"videos/fazenda=2F1/{VIDEO}/"
    assert keys.of_attempt(VIDEO, 3) == f"snaps/{VIDEO}/3/"


# --- room -------------------------------------------------------------------------------------------------------


def test_a_disk_with_room_refuses_nothing_and_one_without_says_why(tmp_path: Path) -> None:
    deep = tmp_path / "not" / "there" / "yet"
    assert Room(deep, 0).refusal() is None
    refusal = Room(deep, 10**9).refusal() or ""
    assert refusal.endswith(f"{10**9} MB must stay free")
    with pytest.raises(NoRoom, match="must stay free"):
        Room(deep, 10**9).require()
    assert "MB are wanted" in (Room(deep, 0).refusal(2**60) or "")
