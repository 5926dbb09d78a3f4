"""Operators who signed in by a personal link: they mark in their own name, and are offered only what they may do."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.databases import Postgres
from tests.web.conftest import Server, opened
from tests.web.operating import brete, ready, send

__all__ = ["brete"]  # a fixture


@pytest.fixture
def url(server: Postgres) -> Iterator[str]:
    """A database of its own: another server's worker would look for the video in another folder."""
    with server.database("migrated") as url:
        yield url


def link_of(site: Server, name: str) -> str:
    """The personal link of a new operator, made with the tenant's token."""
    asked = urllib.request.Request(
        f"{site.home}v2/operators",
        data=json.dumps({"nickname": name, "email": f"{name}@fazenda.example", "role": "operator"}).encode(),
        headers={"Content-Type": "application/json", "X-Assinatura-Token": "dev-default-token"},
    )
    with urllib.request.urlopen(asked) as answer:
        link: str = json.load(answer)["link"]
    return site.home.rstrip("/") + link


def sign_in(page: Page, link: str, name: str) -> None:
    page.goto(link)
    expect(page.locator(".sign-in")).to_contain_text(name)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#operator")).to_have_text(name)


@pytest.mark.at_length  # test_operator signs in, and api/product/test_rights has every right, in every run
def test_who_signed_in_marks_in_their_name_and_changes_only_their_own(
    browser: Browser, serve: Callable[..., Server], brete: Path, tmp_path: Path
) -> None:
    """S33: a name is not asked for, a mark is theirs, and another's is shown without what they may not do."""
    site = serve(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_INTERNAL_TOKEN="open-the-door-please", SNAPAPP_DEMO="false")
    with opened(browser, "about:blank") as (page, complaints):
        sign_in(page, link_of(site, "Ana"), "Ana")
        expect(page.locator("#operator")).to_be_disabled()
        ready(page, brete)
        page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Zoe', email: 'z@evil.example'}))")
        with page.expect_response(
            lambda answer: answer.request.method == "POST" and answer.url.endswith("/v2/snaps")
        ) as marked:
            page.keyboard.press("s")
        snap = marked.value.json()
        assert (snap["nickname"], snap["email"]) == ("Ana", "ana@fazenda.example")
        expect(page.locator("#who")).to_be_hidden()
        moment = page.locator("#moments > li").first
        expect(moment.get_by_role("button", name="Describe", exact=True)).to_be_visible()
        page.goto(f"{site.home}snaps/{snap['snapId']}")
        page.get_by_role("button", name="Correct when it was filmed").click()
        expect(page.get_by_label("Who corrects it")).to_have_value("Ana")
        page.locator("#filmed").fill("2026-02-28T08:15:30")
        page.keyboard.press("Enter")
        expect(page.locator("#corrections li")).to_contain_text("Ana")

        page.goto(site.home)
        (damaged := tmp_path / "damaged.mp4").write_bytes(brete.read_bytes()[:2000])
        send(page, damaged)
        page.locator("#videos button", has_text="damaged.mp4").click()
        expect(page.locator("#film-said")).to_contain_text("cannot be used")
        expect(page.get_by_role("button", name="Delete this file")).to_be_visible()
    assert complaints == []

    with opened(browser, "about:blank") as (page, complaints):
        sign_in(page, link_of(site, "Bia"), "Bia")
        page.goto(f"{site.home}?video={snap['videoId']}")
        expect(page.locator("#moments > li")).to_have_count(1)
        expect(page.locator("#moments > li").get_by_role("button", name="Describe", exact=True)).to_have_count(0)
        expect(page.locator("#moments > li").get_by_role("button", name="Delete", exact=True)).to_have_count(0)
        page.goto(f"{site.home}snaps/{snap['snapId']}")
        expect(page.locator("#record")).to_contain_text("Ana")
        expect(page.get_by_role("button", name="Correct when it was filmed")).to_have_count(0)
        expect(page.locator("#share-make")).to_be_hidden()
        page.goto(site.home)
        page.locator("#videos button", has_text="damaged.mp4").click()
        expect(page.locator("#film-said")).to_contain_text("cannot be used")
        expect(page.get_by_role("button", name="Delete this file")).to_be_hidden()
        no_line = "**/v2/session"
        page.route(no_line, lambda route: route.abort() if route.request.method == "DELETE" else route.continue_())
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.locator("#lost")).to_contain_text("does not answer")  # the cookie is still here, and so is the name
        expect(page.locator("#operator")).to_have_text("Bia")
        page.unroute(no_line)
        page.get_by_role("button", name="Sign out", exact=True).click()
        expect(page.locator("#sign-in-token")).to_be_visible()
    assert [each for each in complaints if "401" not in each and "ERR_FAILED" not in each] == []
