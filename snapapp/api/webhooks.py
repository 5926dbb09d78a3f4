"""/v2/webhooks: whom a tenant wants told of what. What is sent is signed with a secret that is shown once."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field, StrictBool

from snapapp import webhooks
from snapapp.api.body import StrictRoute
from snapapp.api.errors import may_be
from snapapp.api.schema import Asked, Id, Shown
from snapapp.api.snap_schema import VideoUrl
from snapapp.api.tenancy import Own

router = APIRouter(prefix="/v2/webhooks", tags=["webhooks"], route_class=StrictRoute)

WebhookId = Annotated[Id, Path(description="The webhook's id.", examples=[7])]
_NO_WEBHOOK = may_be(_404="The tenant has no such webhook.")


class Event(StrEnum):
    COMPLETED = "snap.completed"
    FAILED = "snap.failed"
    SHARED = "snap.shared"


Events = Annotated[list[Event], Field(min_length=1, max_length=20, examples=[["snap.completed", "snap.failed"]])]


class NewWebhook(Asked):
    url: VideoUrl = Field(description="Where to; http or https.", examples=["https://app.example/hooks/snaps"])
    events: Events


class WebhookChange(Asked):
    """What is left out stays as it is."""

    url: VideoUrl | None = Field(None, description="Where to.")
    events: Events | None = None
    is_active: StrictBool | None = Field(None, description="Whether it is told anything.")


class WebhookShown(Shown):
    id: int = Field(examples=[7])
    url: str
    events: list[str]
    is_active: bool
    created_at: datetime


class WebhookMade(WebhookShown):
    secret: str = Field(description="Shown this once: what `X-Snapapp-Signature` is made with.")


class WebhookList(Shown):
    items: list[WebhookShown]


@router.get("")
def list_webhooks(own: Own) -> WebhookList:
    """All of the tenant's."""
    found = webhooks.every(own.connection, own.code)
    return WebhookList(items=[WebhookShown.model_validate(each) for each in found])


@router.post("", status_code=201, responses=may_be(_409="The tenant has as many as it may have."))
def add_webhook(own: Own, wanted: NewWebhook, response: Response) -> WebhookMade:
    """From now on these events are told there. Keep the secret: nobody can show it again."""
    made, secret = webhooks.add(own.connection, own.code, wanted.url, wanted.events)
    response.headers["Location"] = f"{router.prefix}/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return WebhookMade(**WebhookShown.model_validate(made).model_dump(), secret=secret)


@router.get("/{webhook_id}", responses=_NO_WEBHOOK)
def show_webhook(own: Own, webhook_id: WebhookId) -> WebhookShown:
    """One of them."""
    return WebhookShown.model_validate(webhooks.read(own.connection, own.code, webhook_id))


@router.patch("/{webhook_id}", responses=_NO_WEBHOOK)
def change_webhook(own: Own, webhook_id: WebhookId, wanted: WebhookChange) -> WebhookShown:
    """Tells it elsewhere, of other events, or nothing for a while. The secret stays."""
    changed = webhooks.change(
        own.connection, own.code, webhook_id, url=wanted.url, events=wanted.events, is_active=wanted.is_active
    )
    return WebhookShown.model_validate(changed)


@router.delete("/{webhook_id}", status_code=204, responses=_NO_WEBHOOK)
def remove_webhook(own: Own, webhook_id: WebhookId) -> None:
    """Tells it nothing any more."""
    webhooks.remove(own.connection, own.code, webhook_id)
