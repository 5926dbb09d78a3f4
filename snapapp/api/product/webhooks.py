"""/v2/webhooks: the URLs that a tenant wants called for events. Calls are signed with a secret that is shown once. For
the tenant's token, and for admins."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Response
from pydantic import Field, StrictBool

from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Asked, Id, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import OwnSettings
from snapapp.api.product.snap_schema import Url
from snapapp.domain import webhooks
from snapapp.domain.webhooks import Event

router = Router(prefix="/v2/webhooks", tags=["webhooks"], route_class=StrictRoute)

WebhookId = Annotated[Id, Path(description="The webhook's id.", examples=[7])]
_ADMINS = may_be(_403="Who is signed in is no admin.")
_NO_WEBHOOK = _ADMINS | may_be(_404="The tenant has no such webhook.")


Events = Annotated[list[Event], Field(min_length=1, max_length=20, examples=[["snap.completed", "snap.failed"]])]


class NewWebhook(Asked):
    url: Url = Field(description="The URL to call; http or https.", examples=["https://app.example/hooks/snaps"])
    events: Events


class WebhookChange(Asked):
    """Changes to a webhook. Fields that are left out keep their values."""

    url: Url | None = Field(None, description="The URL to call.")
    events: Events | None = None
    is_active: StrictBool | None = Field(None, description="Whether it is called.")


class WebhookShown(Shown):
    id: int = Field(examples=[7])
    url: str
    events: list[str]
    is_active: bool = Field(description="Whether it is called.")
    paused_because: str | None = Field(
        description="Why it is not called: its receiver answered 410, or it was paused by hand."
    )
    created_at: datetime


class WebhookMade(WebhookShown):
    secret: str = Field(description="The secret of `X-Snapapp-Signature`, shown only in this answer.")


class WebhookList(Shown):
    items: list[WebhookShown]


@router.get("", responses=_ADMINS)
def list_webhooks(own: OwnSettings) -> WebhookList:
    """The tenant's webhooks."""
    hooks = webhooks.every(own.db, own.code)
    return WebhookList(items=[WebhookShown.model_validate(each) for each in hooks])


@router.post("", status_code=201, responses=_ADMINS | may_be(_409="The tenant has as many as it may have."))
def add_webhook(own: OwnSettings, wanted: NewWebhook, response: Response) -> WebhookMade:
    """Adds a webhook, which is called for these events from now on. Keep the secret: it is not shown again."""
    hook = webhooks.add(own.db, own.code, wanted.url, wanted.events)
    response.headers["Location"] = f"{router.prefix}/{hook.id}"
    response.headers["Cache-Control"] = "no-store"
    return WebhookMade.model_validate(hook)


@router.get("/{webhook_id}", responses=_NO_WEBHOOK)
def show_webhook(own: OwnSettings, webhook_id: WebhookId) -> WebhookShown:
    """One webhook."""
    return WebhookShown.model_validate(webhooks.read(own.db, own.code, webhook_id))


@router.patch("/{webhook_id}", responses=_NO_WEBHOOK)
def change_webhook(own: OwnSettings, webhook_id: WebhookId, wanted: WebhookChange) -> WebhookShown:
    """Changes a webhook's URL or events, or pauses it. The secret stays the same."""
    hook = webhooks.change(
        own.db, own.code, webhook_id, url=wanted.url, events=wanted.events, is_active=wanted.is_active
    )
    return WebhookShown.model_validate(hook)


@router.delete("/{webhook_id}", status_code=204, responses=_NO_WEBHOOK)
def remove_webhook(own: OwnSettings, webhook_id: WebhookId) -> None:
    """Removes a webhook."""
    webhooks.remove(own.db, own.code, webhook_id)
