"""What whoever is on call does at /ops, and what they see there."""

import re
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.factory import Db
from tests.web.conftest import Server

IS_OPEN = "(fold) => fold.open"


def visit(page: Page, site: Server, path: str) -> None:
    page.goto(site.home + path)
    expect(page.locator("#link")).to_have_attribute("data-state", "live")


def look(page: Page) -> None:
    """What a window does that somebody comes back to; by itself it looks every three seconds, which others show."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def panel(page: Page, title: str) -> Locator:
    return page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))


def confirm(page: Page, button: str, *, name: str = "Ana", reason: str | None = None) -> None:
    dialog = page.locator("#sure")
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_label("Your name").fill(name)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_be_hidden()


def deeds(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT who, action, subject, jobs FROM job_audit ORDER BY id").fetchall()


def shown(page: Page, db: Db, title: str) -> list[list[tuple[Any, ...]]]:
    """The first column of each statement that a panel shows, as the database answers it."""
    part = panel(page, title)
    part.get_by_role("button", name="SQL").click()
    said = part.locator(".code code").first.inner_text()
    statements = [each for each in said.split(";") if re.sub("--.*", "", each).strip()]
    return [[row[:1] for row in db.execute(each.encode()).fetchall()] for each in statements]
