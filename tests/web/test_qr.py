"""QR codes, held against those of another implementation, and the link of a moment as one."""

import re

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.web.conftest import CONTRASTS, Server, opened
from tests.web.test_axe import violations
from tests.web.test_gallery import MARKED, full
from tests.web.test_share import english_in

__all__ = ["full"]  # a fixture

# Rows as hex, from the top, of the Python library qrcode 8: bytes, level M, the mask that ours chooses.
LINK = "https://farm.example/public/snaps/0f8fad5bd9cb469fa16570867728950e"
VERSION_5 = (
    "1fd20b8a7f 104e2a7c41 1747ecd45d 1753a00f5d 1755f92f5d 1058ea1041 1fd555557f 001d728700 117bd317f9 "
    "188a46d2b2 06caaaf720 0c2dfbb7c6 0bc7c8d3e7 1805b4ab18 18cda83ebc 10a46c7634 1ef306556c 0abf932a92 "
    "1b49556398 0ebdc8a32e 194cbe80ec 1d09e82fb2 144db5eb3e 101a20a0f6 01f3d3076f 1f878ef298 024d6a36ac "
    "01073bb0df 1c42c9c1fd 001b74e510 1fd1e83150 104bbf531f 17578465fd 174c933ae9 17471574c8 104908a41e "
    "1fdeebf4ef "
)
VERSION_7 = (  # from 7 on a code names its version, and has blocks of more than one length
    "1fcd1b2dd17f 105b0e877a41 1741d4d2225d 1749e178835d 175e4bfddf5d 10488f177041 1fd55555557f 00088b1ddf00 "
    "154addf77612 18a477d2202d 0f7c72788987 042a882ddfd2 1dd3dd877678 192167d2202d 0f7592788987 1d05a82ddfd2 "
    "09c71d877678 0b2577d2202d 11f5a2788987 1c35982ddfd2 11f74df777f8 1f14b712211d 0d5bf1588b57 1311591ddf12 "
    "19f747f775f8 1e933972228d 0c66f5288ad7 1392528ddd73 1dc076d77528 1cb02972228d 16785d288ad7 07ba3a8ddd72 "
    "104006d77528 0e3c7572228d 0178bd288ad7 0f3a2a8ddd72 135337f775f8 001ee512231d 1fcd1b588957 104e951ddf12 "
    "17523df777f8 1740aa2221dd 175810888b77 10459dddde22 1fd93777748b "
)


@pytest.mark.parametrize(("text", "rows"), [(LINK, VERSION_5), ("x" * 122, VERSION_7)], ids=["a link", "more"])
def test_a_code_is_that_of_another_implementation(browser: Browser, site: Server, text: str, rows: str) -> None:
    with opened(browser, f"{site.home}snaps") as (page, _):
        made = page.evaluate("async (text) => (await import('/static/parts/qr.js')).modulesOf(text)", text)
    size = len(rows.split())
    assert made == [[int(each) for each in f"{int(row, 16):0{size}b}"] for row in rows.split()]


def test_a_text_that_is_too_long_has_none(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.home}snaps") as (page, _):
        sizes = page.evaluate(
            "async () => { const { modulesOf } = await import('/static/parts/qr.js');"
            " return [0, 14, 15, 180, 181].map((length) => modulesOf('x'.repeat(length))?.length ?? null) }"
        )
    assert sizes == [21, 21, 25, 53, None]


@pytest.mark.at_length  # test_share shares and revokes, and a code is read below, in every run
def test_a_link_is_shown_as_a_code_ends_when_somebody_says_and_goes(browser: Browser, full: Server) -> None:
    snap = httpx.post(f"{full.home}v2/snaps", json=MARKED | {"nickname": "Ana", "subject": {"id": "BR-1"}}).json()
    with opened(browser, f"{full.home}snaps/{snap['snapId']}", locale="pt-BR", color_scheme="dark") as (
        page,
        complaints,
    ):
        expect(page.get_by_text("Código QR")).to_be_hidden()
        page.get_by_label("O link vale até").fill("2020-01-01")
        page.get_by_role("button", name="Criar um link").click()
        expect(page.locator("#share-said")).to_have_text("Esse dia já passou.")
        expect(page.get_by_label("O link vale até")).to_have_attribute("aria-invalid", "true")
        page.get_by_label("O link vale até").fill("")
        page.get_by_role("button", name="Criar um link").click()
        expect(page.locator("#share-url")).to_have_text(re.compile("/public/snaps/[0-9a-f]{32}$"))
        page.get_by_text("Código QR").click()
        picture = page.get_by_role("img", name="Código QR do link")
        expect(picture).to_be_visible()
        assert violations(page) == []
        assert page.evaluate(CONTRASTS) == []
        assert english_in(page) == set()
        page.get_by_role("button", name="Mudar a data de término").click()
        expect(page.locator("#share-said")).to_have_text("Informe um dia.")
        page.get_by_label("O link vale até").fill("2099-12-31")
        page.get_by_role("button", name="Mudar a data de término").click()
        expect(page.locator("#share-ends")).to_contain_text("2099")
        page.get_by_label("O link vale até").fill("12026-01-01")
        page.get_by_role("button", name="Mudar a data de término").click()
        expect(page.locator("#share-said")).to_have_text("Informe um dia.")
        shown = page.locator("#share-url").inner_text()
        assert httpx.post(f"{full.home}v2/snaps/{snap['snapId']}/revoke").status_code == 200  # by somebody else
        page.get_by_label("O link vale até").fill("2099-12-31")
        page.get_by_role("button", name="Mudar a data de término").click()
        expect(page.locator("#share-said")).to_have_text("O link anterior não vale mais. Este é o novo.")
        link = page.locator("#share-url").inner_text()
        assert link != shown
        page.get_by_role("button", name="Encerrar o link agora").click()
        expect(picture).to_have_count(0)
        assert httpx.get(link).status_code == 404
    assert complaints == []
