"""Webhooks: whom to tell of what; the secret is shown once and stays."""

from collections.abc import Iterator

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import webhooks
from snapapp.errors import WebhookNotFound
from tests.domain.making import acting

OWN = "default"


@pytest.fixture
def own(engine: sqlalchemy.Engine) -> Iterator[Session]:
    with acting(engine, OWN) as session:
        yield session


def test_a_webhook_is_added_changed_and_removed(own: Session) -> None:
    hook = webhooks.add(own, OWN, "https://example.org/", ["snap.failed", "snap.completed"])
    secret = hook.secret
    assert (hook.url, hook.is_active, len(secret) >= 32) == ("https://example.org/", True, True)
    assert hook.events == ["snap.completed", "snap.failed"]
    own.expire_all()
    changed = webhooks.change(own, OWN, hook.id, is_active=False)
    assert (changed.url, len(changed.events), changed.is_active) == ("https://example.org/", 2, False)
    assert changed.paused_because == "It was paused by hand."
    webhooks.change(own, OWN, hook.id, url="https://example.org/b", events=["snap.shared"])
    own.expire_all()
    moved = webhooks.read(own, OWN, hook.id)
    assert (moved.url, moved.events, moved.is_active) == ("https://example.org/b", ["snap.shared"], False)
    assert moved.secret == secret
    woken = webhooks.change(own, OWN, hook.id, is_active=True)
    assert (woken.is_active, woken.paused_because) == (True, None)
    webhooks.remove(own, OWN, hook.id)
    with pytest.raises(WebhookNotFound):
        webhooks.remove(own, OWN, hook.id)


def test_those_who_want_an_event_are_told(own: Session) -> None:
    hook = webhooks.add(own, OWN, "https://example.org/", ["snap.completed"])
    asleep = webhooks.add(own, OWN, "https://example.org/", ["snap.completed"])
    webhooks.change(own, OWN, asleep.id, is_active=False)
    assert webhooks.wanting(own, OWN, "snap.completed") == [hook]
    assert webhooks.wanting(own, OWN, "snap.failed") == []
