"""The page at /operators in a browser: an admin lets people sign in, and each may then do what the page says."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.databases import Postgres
from tests.web.conftest import CONTRASTS, HOSTILE, Server, opened
from tests.web.operating import brete, moments, ready
from tests.web.test_axe import violations
from tests.web.test_share import english_in

__all__ = ["brete"]  # a fixture

TOKEN = "dev-default-token"
ROLES = {"operator": "operador", "reviewer": "revisor", "admin": "administrador"}


@pytest.fixture
def url(server: Postgres) -> Iterator[str]:
    """A database of its own: another server's worker would look for the video in another folder."""
    with server.database("migrated") as url:
        yield url


@pytest.fixture
def site(serve: Callable[..., Server]) -> Server:
    return serve(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_INTERNAL_TOKEN="open-the-door-please", SNAPAPP_DEMO="false")


def by_token(page: Page) -> None:
    page.locator("#token").fill(TOKEN)
    page.locator("#token").press("Enter")
    page.wait_for_url("**/operators")


def add(page: Page, name: str, role: str, address: str = "") -> str:
    """Fills in the form; returns the link."""
    page.locator("#nickname").fill(name)
    page.locator("#email").fill(address or f"{name.lower()}@fazenda.example")
    page.locator("#role").select_option(role)
    page.locator("form.add button").click()
    expect(page.locator("#made-title")).to_contain_text(name)
    return str(page.locator("#link").evaluate("each => each.href"))


def fits(page: Page) -> bool:
    page.wait_for_load_state("load")  # without its styles a page is wider
    return bool(page.evaluate("document.documentElement.scrollWidth") <= 380)


def of(page: Page, name: str, what: str) -> None:
    """Unfolds a person's line, and presses a button there."""
    line = page.locator(".entries > li", has_text=name)
    line.locator("summary").first.click()
    line.get_by_role("button", name=what).click()


def sign_in(page: Page, name: str) -> None:
    expect(page.locator(".sign-in")).to_contain_text(name)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#operator")).to_have_text(name)


@pytest.mark.at_length  # api/product/test_people_page and test_rights have it in every run
def test_an_admin_lets_somebody_in_who_marks_and_with_another_role_corrects(
    browser: Browser, site: Server, brete: Path
) -> None:
    """S33: from the link that is copied to a correction of what somebody else marked."""
    may_copy = {"permissions": ["clipboard-read", "clipboard-write"]}
    with opened(browser, f"{site.home}sign-in?next=/operators", **may_copy) as (page, complaints):
        by_token(page)
        page.goto(add(page, "Eva", "admin"))
        sign_in(page, "Eva")
        ready(page, brete)
        page.keyboard.press("s")
        expect(moments(page)).to_have_count(1)
        page.get_by_role("link", name="People").click()
        link = add(page, "Bia", "operator")
        expect(page.locator("#link")).to_have_text(link)
        page.get_by_role("button", name="Copy").click()
        expect(page.locator("#link-copy")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == link
        page.get_by_text("QR code").click()
        expect(page.get_by_role("img", name="QR code of the link")).to_be_visible()

        with opened(browser, link) as (other, said):
            sign_in(other, "Bia")
            expect(other.get_by_role("link", name="People")).to_be_hidden()
            other.locator("#videos button").first.click()
            expect(other.locator("#mark")).to_be_enabled()
            expect(moments(other)).to_have_count(1)
            correct = moments(other).get_by_role("button", name="Describe", exact=True)
            expect(correct).to_have_count(0)
            other.get_by_label("Filmed, at the beginning").fill("2026-03-01T08:15:00")
            other.get_by_label("Filmed, at the beginning").blur()
            other.locator("#seek").fill("0.8")
            other.get_by_role("button", name="Mark").click()
            expect(moments(other)).to_have_count(2)
            expect(correct).to_have_count(1)

            line = page.locator(".entries > li", has_text="Bia")
            line.locator("summary").first.click()
            line.get_by_label("Role").select_option("reviewer")
            line.get_by_role("button", name="Change the role").click()
            expect(page.get_by_role("status")).to_contain_text("The new role holds from now on.")
            expect(line).to_contain_text("reviewer")

            other.reload()
            expect(correct).to_have_count(2)
            other.goto(str(moments(other).get_by_role("link", name="Open").first.evaluate("each => each.href")))
            other.get_by_role("button", name="Correct when it was filmed").click()
            other.locator("#filmed").fill("2026-02-28T08:15:30")
            other.keyboard.press("Enter")
            expect(other.locator("#corrections li")).to_contain_text("Bia")

            line.locator("summary").first.click()
            line.get_by_text("Revoke", exact=True).click()
            line.get_by_role("button", name="Revoke Bia").click()
            expect(page.locator(".entries > li")).to_have_count(1)
            other.goto(site.home)
            expect(other.locator("#sign-in-token")).to_be_visible()
        assert [each for each in said if "401" not in each] == []
    assert complaints == []


@pytest.mark.at_length  # axe judges the page, and api/product/test_operators has its forms, in every run
def test_it_is_whole_on_a_phone_without_scripts_and_in_portuguese(browser: Browser, site: Server) -> None:
    phone = {"viewport": {"width": 380, "height": 800}, "locale": "pt-BR"}
    start = f"{site.home}sign-in?next=/operators"
    with opened(browser, start, java_script_enabled=False, **phone) as (page, complaints):
        assert fits(page)
        by_token(page)
        link = add(page, "Ana " + "longa" * 20, "operator", f"{'a' * 200}@fazenda.example")
        assert link.startswith(f"{site.home}sign-in/default/")
        expect(page.locator("#link-copy")).to_be_hidden()
        of(page, "longa", "Novo link")
        assert page.locator("#link").evaluate("each => each.href") != link
        page.get_by_role("link", name="EN", exact=True).click()
        expect(page.locator("h1")).to_have_text("Who may sign in")
        page.get_by_role("link", name="PT", exact=True).click()
        assert fits(page)
        page.locator("summary").first.click()
        page.get_by_text("Revogar", exact=True).click()
        page.get_by_role("button", name="Revogar Ana").click()
        expect(page.locator(".entries")).to_contain_text("Ninguém tem link pessoal")
    assert complaints == []

    with opened(browser, start, color_scheme="dark", **phone) as (page, complaints):
        assert violations(page) == []
        by_token(page)
        for place, (role, papel) in enumerate(ROLES.items()):
            add(page, f"{HOSTILE}{place}", role, f"{place}@fazenda.example")
            expect(page.locator(".entries > li").last).to_contain_text(papel)
        page.get_by_text("Código QR").click()
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        assert violations(page) == []
        assert page.evaluate(CONTRASTS) == []
        assert english_in(page) == set()
        assert fits(page)
        page.locator("#nickname").fill("Zoe")
        page.locator("#email").fill("0@fazenda.example")
        page.locator("form.add button").click()
        expect(page.get_by_role("alert")).to_contain_text("Esta pessoa já pode entrar: 0@fazenda.example")
        assert violations(page) == []
        link = add(page, "Rui", "reviewer")
        page.goto(link)
        assert violations(page) == []
        page.get_by_role("button", name="Entrar").click()
        expect(page.locator("#operator")).to_have_text("Rui")
        page.goto(f"{site.home}operators")
        expect(page.locator("h1")).to_have_text("Só um administrador pode ver e alterar isto")
        assert (violations(page), english_in(page)) == ([], set())
        assert re.search("1", page.title()) is None, "no name became a script"
    assert [each for each in complaints if "403" not in each and "409" not in each] == []
