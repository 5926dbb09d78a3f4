"""A video on another server is added by its address, and marked."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.web.conftest import CONTRASTS, Server, opened
from tests.web.operating import brete, moments
from tests.web.test_axe import violations
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES
from tests.web.test_share import english_in

__all__ = ["brete"]  # a fixture


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def camera(brete: Path) -> Iterator[str]:
    """A server beside us that has the file."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(brete.parent))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(empty_url: str, tmp_path: Path, camera: str) -> Iterator[Server]:
    """Its worker may fetch from there; one of another server on the same database might not."""
    server = Server(empty_url, tmp_path, SNAPAPP_FETCH_ALLOWED_HOSTS=camera, SNAPAPP_DEMO="false")
    server.start()
    yield server
    server.stop()


@pytest.mark.at_length  # api/product/test_videos adds one by its address in every run
def test_a_video_that_comes_late_takes_nothing_from_whoever_does_something_else(
    browser: Browser, site: Server, camera: str, brete: Path
) -> None:
    with opened(browser, site.home) as (page, _):
        page.locator("#upload-file").set_input_files([brete])
        expect(page.locator("#mark")).to_be_enabled()
        held: list[Route] = []
        page.route("**/v2/videos/remote", lambda route: held.append(route))
        for name in ("brete.mp4?again", "gone.mp4"):
            page.get_by_label("Or the address of a video").fill(f"http://{camera}/{name}")
            with page.expect_request("**/v2/videos/remote"):
                page.keyboard.press("Enter")
            address = page.url
            page.locator("#filmed").click()
            held.pop().continue_()
            expect(
                page.locator("#remote-said, #remote-wrong").filter(has_text=re.compile("is here|nothing"))
            ).to_be_visible()
            expect(page.locator("#filmed")).to_be_focused()
            assert page.url == address


@pytest.mark.at_length  # api/product/test_videos has it in every run
def test_a_video_is_added_by_its_address_and_what_is_wrong_is_said(browser: Browser, site: Server, camera: str) -> None:
    with opened(browser, site.home, locale="pt-BR") as (page, complaints):
        address, wrong = page.get_by_label("Ou o endereço de um vídeo"), page.locator("#remote-wrong")
        for typed, said in (
            ("brete.mp4", "Um endereço começa com http:// ou https:// e não tem espaços."),
            (f"http://{camera}/gone.mp4", f"Não há nada em http://{camera}/gone.mp4"),
            ("http://localhost/brete.mp4", "Esse endereço não é público"),
        ):
            address.fill(typed)
            page.keyboard.press("Enter")
            expect(wrong).to_contain_text(said)
            expect(address).to_have_value(typed)  # to be mended
        assert violations(page) == []
        assert page.evaluate(CONTRASTS) == []
        assert english_in(page) == set()
        address.fill(f"http://{camera}/brete.mp4")
        page.get_by_role("button", name="Adicionar").click()
        expect(page.locator("#video-title")).to_have_text("brete.mp4", timeout=PATIENCE)
        expect(wrong).to_be_empty()
        expect(page.locator("#video-facts")).to_contain_text("quadros por segundo")  # it was examined
        expect(page.locator("#mark")).to_be_enabled()
        page.locator("#filmed").fill("2026-03-01T08:15:00")
        page.locator("#filmed").blur()
        page.evaluate(
            "localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'ana@fazenda.example'}))"
        )
        page.keyboard.press("s")
        expect(moments(page).first.locator(".state")).to_have_text(
            SOME_FRAMES.replace("frames", "quadros").replace("clip", "clipe"), timeout=PATIENCE
        )
    assert [said for said in complaints if "400" not in said] == []
