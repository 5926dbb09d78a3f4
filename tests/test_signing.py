"""Links that we give away and must know again: nobody else makes one, and each ends."""

import re
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import BadSignature

from snapapp.signing import ExpiredLink, ForgedLink, MediaLinks, NoSecret, sealer, secret_kept_in

OLD, NEW = "an old secret that was good enough", "a new secret that is better than it"
NOW = datetime(2026, 5, 4, 12, 0, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PREFIX = "snaps/0197a0f0-0000-7000-8000-000000000001/3/"
LINKS = MediaLinks((NEW,), DAY)


def test_a_link_opens_to_what_it_was_made_for() -> None:
    prefix, ends = LINKS.opened(LINKS.token(PREFIX, NOW), NOW)
    assert prefix == PREFIX
    assert NOW + DAY <= ends <= NOW + DAY * 9 / 8
    assert re.fullmatch(r"/media/[A-Za-z0-9_.-]+/", LINKS.base(PREFIX, NOW))


def test_a_link_works_until_it_ends_and_not_a_second_longer() -> None:
    token = LINKS.token(PREFIX, NOW)
    _, ends = LINKS.opened(token, NOW)
    assert LINKS.opened(token, ends - timedelta(seconds=1))
    for late in (ends, ends + DAY * 400):
        with pytest.raises(ExpiredLink, match="has expired"):
            LINKS.opened(token, late)


def test_a_link_without_a_time_does_not_end_and_is_always_the_same() -> None:
    links = MediaLinks((NEW,), timedelta(0))
    token = links.token(PREFIX, NOW)
    assert links.opened(token, NOW + DAY * 40_000)[0] == PREFIX
    assert links.token(PREFIX, NOW + DAY * 400) == token
    assert LINKS.opened(token, NOW)[0] == PREFIX, "it outlives the setting"


def test_a_link_stays_the_same_for_a_while_so_that_browsers_find_it_in_their_cache() -> None:
    """At every moment it has its whole time before it."""
    minutes = [NOW + timedelta(minutes=number) for number in range(1440)]
    tokens = [LINKS.token(PREFIX, now) for now in minutes]
    assert len({*tokens}) in (8, 9)
    assert all(LINKS.opened(token, now)[1] - now >= DAY for token, now in zip(tokens, minutes, strict=True))


def test_no_byte_of_a_link_can_be_changed() -> None:
    token = LINKS.token(PREFIX, NOW)
    for place in range(len(token)):
        for other in "Aa0-_=.~%/ \x00é":
            changed = token[:place] + other + token[place + 1 :]
            if changed != token:
                with pytest.raises(ForgedLink):
                    LINKS.opened(changed, NOW)
    for wrong in ("", "a", token[:-1], token + "A", token + "=", " " + token, token * 50, "x" * 100_000):
        with pytest.raises(ForgedLink):
            LINKS.opened(wrong, NOW)


@given(st.text(max_size=200))
def test_whatever_stands_in_the_place_of_a_link_is_forged(text: str) -> None:
    with pytest.raises(ForgedLink):
        LINKS.opened(text, NOW)


def test_a_new_secret_signs_while_the_old_one_still_counts() -> None:
    before, during, after = MediaLinks((OLD,), DAY), MediaLinks((NEW, OLD), DAY), MediaLinks((NEW,), DAY)
    old, new = before.token(PREFIX, NOW), during.token(PREFIX, NOW)
    assert during.opened(old, NOW)[0] == during.opened(new, NOW)[0] == after.opened(new, NOW)[0] == PREFIX
    for links, token in ((after, old), (before, new)):
        with pytest.raises(ForgedLink):
            links.opened(token, NOW)


def test_a_seal_for_one_thing_is_none_for_another() -> None:
    links, cookies = sealer((NEW,), "media links"), sealer((NEW,), "cookies")
    assert links.loads(links.dumps("content")) == "content"
    with pytest.raises(BadSignature):
        cookies.loads(links.dumps("content"))
    with pytest.raises(ValueError, match="no secret"):
        sealer((), "media links")


def test_secrets_are_not_in_what_is_printed() -> None:
    assert NEW not in repr(LINKS)


# --- the secret of a developer ----------------------------------------------------------------------------------


def test_a_secret_is_made_once_and_kept_from_others(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "var"
    secret = secret_kept_in(folder)
    assert secret_kept_in(folder) == secret
    assert len(secret) >= 32
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]
    assert secret_kept_in(tmp_path / "another") != secret


def test_many_who_ask_first_get_one_secret(tmp_path: Path) -> None:
    barrier = Barrier(8)

    def ask(_: int) -> str:
        barrier.wait()
        return secret_kept_in(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(ask, range(8))}) == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 60], ids=["empty", "short", "not text"])
def test_a_damaged_secret_is_named_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "signing-secret"
    path.write_bytes(content)
    with pytest.raises(NoSecret, match=str(path)):
        secret_kept_in(tmp_path)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_keep_a_secret_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NoSecret, match="file/signing-secret"):
        secret_kept_in(tmp_path / "file")
