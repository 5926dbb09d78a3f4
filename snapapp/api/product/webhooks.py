"""/v2/webhooks: whom a tenant wants told of what. What is sent is signed with a secret that is shown once."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field, StrictBool

from snapapp.api.http.errors import may_be
from snapapp.api.http.schema import Asked, Id, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import Own
from snapapp.api.product.snap_schema import Url
from snapapp.domain import webhooks

router = APIRouter(prefix="/v2/webhooks", tags=["webhooks"], route_class=StrictRoute)

WebhookId = Annotated[Id, Path(description="The webhook's id.", examples=[7])]
_NO_WEBHOOK = may_be(_404="The tenant has no such webhook.")


class Event(StrEnum):
    COMPLETED = "snap.completed"
    FAILED = "snap.failed"
    SHARED = "snap.shared"


Events = Annotated[list[Event], Field(min_length=1, max_length=20, examples=[["snap.completed", "snap.failed"]])]


class NewWebhook(Asked):
    url: Url = Field(description="Where to; http or https.", examples=["https://app.example/hooks/snaps"])
    events: Events


class WebhookChange(Asked):
    """What is left out stays as it is."""

    url: Url | None = Field(None, description="Where to.")
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
    found = webhooks.every(own.db, own.code)
    return WebhookList(items=[WebhookShown.model_validate(each) for each in found])


@router.post("", status_code=201, responses=may_be(_409="The tenant has as many as it may have."))
def add_webhook(own: Own, wanted: NewWebhook, response: Response) -> WebhookMade:
    """From now on these events are told there. Keep the secret: nobody can show it again."""
    made = webhooks.add(own.db, own.code, wanted.url, wanted.events)
    response.headers["Location"] = f"{router.prefix}/{made.id}"
    response.headers["Cache-Control"] = "no-store"
    return WebhookMade.model_validate(made)


@router.get("/{webhook_id}", responses=_NO_WEBHOOK)
def show_webhook(own: Own, webhook_id: WebhookId) -> WebhookShown:
    """One of them."""
    return WebhookShown.model_validate(webhooks.read(own.db, own.code, webhook_id))


@router.patch("/{webhook_id}", responses=_NO_WEBHOOK)
def change_webhook(own: Own, webhook_id: WebhookId, wanted: WebhookChange) -> WebhookShown:
    """Tells it elsewhere, of other events, or nothing for a while. The secret stays."""
    changed = webhooks.change(
        own.db, own.code, webhook_id, url=wanted.url, events=wanted.events, is_active=wanted.is_active
    )
    return WebhookShown.model_validate(changed)


@router.delete("/{webhook_id}", status_code=204, responses=_NO_WEBHOOK)
def remove_webhook(own: Own, webhook_id: WebhookId) -> None:
    """Tells it nothing any more."""
    webhooks.remove(own.db, own.code, webhook_id)
