"""A moment is found again, shown whole, and shared with somebody who sees it and nothing else."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp import api, web
from tests.web.conftest import CONTRASTS, HOSTILE, Server, opened
from tests.web.operating import brete, moments, ready
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES

__all__ = ["brete"]  # a fixture


PHRASES = re.compile(r'^  (?:"([^"]+)"|(\w+)):\s+"([^"]+)",$', re.MULTILINE)
SAID = """() => {
    const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) if (!walk.currentNode.parentElement.closest("script, style, noscript, code, kbd, [download], [lang=en]:not(html)")) texts.push(walk.currentNode.data);
    for (const element of document.querySelectorAll("body *")) for (const name of ["aria-label", "alt", "title", "placeholder"])
        if (!element.closest("[lang=en]:not(html)")) texts.push(element.getAttribute(name) ?? "");
    return texts;
}"""  # noqa: E501 - hidden ones as well: they will be shown


def english_in(page: Page) -> set[str]:
    """Words of the page that the catalogues have in English and nowhere in Portuguese."""
    script = (Path(web.__file__).parent / "static" / "parts" / "portuguese.js").read_text()
    catalogue = {quoted or bare: words for quoted, bare, words in PHRASES.findall(script)}
    catalogue |= json.loads((Path(api.__file__).parent / "product" / "pages" / "portuguese.json").read_text())
    assert len(catalogue) > 200

    def words(texts: list[str]) -> set[str]:
        return {word for text in texts for word in re.findall(r"[^\W\d_]{3,}", re.sub(r"\{\w+\}", "", text.lower()))}

    return words(page.evaluate(SAID)) & (words([*catalogue]) - words([*catalogue.values()]))


@pytest.mark.at_length  # api/product/test_snap_actions and test_flow have it in every run
def test_a_moment_is_found_shared_and_taken_back(browser: Browser, site: Server, brete: Path) -> None:
    with opened(browser, site.home, locale="pt-BR") as (page, complaints):
        ready(page, brete, filmed="")
        page.get_by_label("Filmado em").fill("2026-03-01T08:15:00")
        page.get_by_label("Filmado em").blur()
        page.keyboard.press("s")
        page.get_by_label("Animal ou objeto").fill("BR-1042")
        page.get_by_label("Observações").fill(f"manca {HOSTILE}")
        page.get_by_role("button", name="Salvar").click()
        expect(moments(page).first.locator(".state")).to_have_text("5 quadros + clipe", timeout=PATIENCE)

        assert english_in(page) == set()
        expect(page.locator("#now")).to_contain_text("0:00,00 /")

        page.goto(f"{site.home}snaps")
        page.get_by_label("Palavras na descrição").fill("nothing like it")
        page.keyboard.press("Enter")
        expect(page.locator("#found-said")).to_contain_text("Nenhum momento encontrado.")
        page.get_by_label("Palavras na descrição").fill("mancas")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/snaps\?q=mancas"))  # before its script ran, a form sends its empty fields too
        expect(page.get_by_label("Palavras na descrição")).to_have_value("mancas")
        page.get_by_label("Palavras na descrição").fill("manca")
        page.get_by_text("Filtros").click()
        page.get_by_role("searchbox", name="Marcado por").fill("ana")
        page.keyboard.press("Enter")
        expect(page.locator("#found li")).to_have_count(1)
        page.wait_for_url("**/snaps?q=manca&nickname=ana")
        page.go_back()
        expect(page.get_by_label("Palavras na descrição")).to_have_value("mancas")
        page.go_forward()
        assert english_in(page) == set()
        page.locator("#found .card").click()

        expect(page.locator("#frames img")).to_have_count(5)
        expect(page.locator("#record")).to_contain_text(HOSTILE)
        expect(page.locator("#corrections li")).to_have_count(1)
        page.get_by_role("button", name="Criar um link").click()
        expect(page.locator("#share-url")).to_have_text(re.compile(f"{site.home}public/snaps/[0-9a-f]{{32}}"))
        link = page.locator("#share-url").inner_text()
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without https
        page.get_by_role("button", name="Copiar").click()
        expect(page.locator("#share-said")).to_have_text("Selecionado")
        assert page.evaluate("getSelection().toString()") == link
        assert page.evaluate(CONTRASTS) == []
        assert english_in(page) == set()

        with opened(browser, link, java_script_enabled=False, viewport={"width": 380, "height": 800}) as (seen, said):
            expect(seen.get_by_role("heading", name="BR-1042")).to_be_visible()
            expect(seen.locator("tbody tr")).to_have_count(6)
            expect(seen.locator("main")).to_contain_text(HOSTILE)
            seen.get_by_role("link", name="Português").click()
            expect(seen.locator("main")).to_contain_text("Registro")
            expect(seen.locator("main")).to_contain_text("25 quadros por segundo")
            assert english_in(seen) == set()
            page.get_by_role("button", name="Encerrar o link agora").click()
            expect(page.locator("#share-said")).to_contain_text("O link foi encerrado")
            seen.reload()
            expect(seen.locator("h1")).to_have_text("Este link não mostra mais nada")
            assert [each for each in said if "404" not in each] == []
    assert complaints == []


@pytest.mark.at_length  # axe judges the page behind a link in every run
def test_the_pages_fit_a_phone_in_the_dark(browser: Browser, site: Server, brete: Path) -> None:
    dark = {"viewport": {"width": 380, "height": 800}, "color_scheme": "dark"}
    with opened(browser, site.home, **dark) as (page, complaints):
        ready(page, brete)
        page.get_by_role("button", name="Mark").click()
        expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
        moments(page).first.get_by_role("link", name="Open").click()
        expect(page.locator("#frames img")).to_have_count(5)
        page.get_by_role("button", name="Make a link").click()
        expect(page.locator("#share-said")).to_contain_text("Describe it first")
        for path in ("", "snaps"):
            if path:
                page.goto(f"{site.home}{path}")
                expect(page.locator("#found li")).to_have_count(1)
            assert page.evaluate(CONTRASTS) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 380
    assert [said for said in complaints if "409" not in said] == []
