"""Webhooks: whom to tell of what; the secret is shown once and stays."""

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy import Connection

from snapapp import webhooks
from snapapp.errors import WebhookNotFound
from tests.domain.making import acting

OWN = "default"


@pytest.fixture
def own(engine: sqlalchemy.Engine) -> Iterator[Connection]:
    with acting(engine, OWN) as connection:
        yield connection


def test_a_webhook_is_added_changed_and_removed(own: Connection) -> None:
    hook, secret = webhooks.add(own, OWN, "https://example.org/", ["snap.failed", "snap.completed"])
    assert (hook.url, hook.is_active, len(secret) >= 32) == ("https://example.org/", True, True)
    assert set(hook.events) == {"snap.completed", "snap.failed"}
    assert webhooks.read(own, OWN, hook.id) == hook
    changed = webhooks.change(own, OWN, hook.id, is_active=False)
    assert (changed.url, changed.events, changed.is_active) == (hook.url, hook.events, False)
    moved = webhooks.change(own, OWN, hook.id, url="https://example.org/b", events=["snap.shared"])
    assert (moved.url, moved.events, moved.is_active) == ("https://example.org/b", ("snap.shared",), False)
    webhooks.remove(own, OWN, hook.id)
    with pytest.raises(WebhookNotFound):
        webhooks.remove(own, OWN, hook.id)


def test_those_who_want_an_event_are_told_with_their_secret(own: Connection) -> None:
    hook, secret = webhooks.add(own, OWN, "https://example.org/", ["snap.completed"])
    asleep, _ = webhooks.add(own, OWN, "https://example.org/", ["snap.completed"])
    webhooks.change(own, OWN, asleep.id, is_active=False)
    assert webhooks.wanting(own, OWN, "snap.completed") == [(hook, secret)]
    assert webhooks.wanting(own, OWN, "snap.failed") == []
