"""The operator's page at /: videos come in, moments are marked and described, and the page says what is so."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.media import material
from tests.web.conftest import CONTRASTS, HOSTILE, Server, emptied, opened
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES, introduce


@pytest.fixture
def url(house: Server) -> str:
    """The server's database, without videos and moments."""
    return emptied(house, "snap_processing_job, video, snap")


@pytest.fixture
def brete(tmp_path: Path) -> Path:
    return material.make(material.GOOD["faststart"], tmp_path / "brete.mp4")


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    """The page at /. Whatever the browser complains of fails the test."""
    with opened(browser, site.home) as (page, complaints):
        yield page
    assert complaints == []


def another(video: Path, place: Path, *, times: int = 1) -> Path:
    """The same pictures in another file."""
    place.write_bytes(video.read_bytes() + times * ((8).to_bytes(4, "big") + b"free"))
    return place


# What has changed is on the page.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"


def send(page: Page, *videos: Path) -> None:
    page.locator("#upload-file").set_input_files(list(videos))


NEWEST = "async () => (await (await fetch('/v2/videos?limit=1')).json()).items?.[0]?.videoId"


def ready(page: Page, video: Path, *, filmed: str = "2026-03-01T08:15:00") -> None:
    """Sends it, waits until it is the one that is shown, and says what the file does not say. The page may have opened
    another test's video first, and a key that is pressed while the player changes over marks nothing. A request that
    begins while the service worker takes the page over reaches the server, whatever page.route says."""
    before = page.evaluate(NEWEST)
    send(page, video)
    until(lambda: page.evaluate(NEWEST) not in (before, None) and page.evaluate(NEWEST) in page.url)
    expect(page.locator("#mark")).to_be_enabled()
    page.wait_for_function("!navigator.serviceWorker || navigator.serviceWorker.controller")
    if filmed:
        page.get_by_label("Filmed, at the beginning").fill(filmed)
        page.get_by_label("Filmed, at the beginning").blur()
    page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'ana@fazenda.example'}))")


def moments(page: Page) -> Locator:
    return page.locator("#moments > li")


def at(page: Page, clock: str) -> None:
    expect(page.locator("#now")).to_contain_text(f"{clock} /")


def go(page: Page, seconds: float) -> None:
    """As a finger on the timeline does."""
    page.locator("#seek").fill(str(seconds))
    at(page, f"0:0{seconds:.2f}")


def named(db: Db) -> dict[float, str]:
    """Which name was filed at which second."""
    found = db.execute("SELECT start_seconds, subject_id FROM snap WHERE NOT is_draft").fetchall()
    return {float(seconds): name for seconds, name in found}


# --- marking that can be trusted --------------------------------------------------------------------------------


def test_a_name_is_filed_at_the_moment_that_it_was_typed_for_and_at_no_other(page: Page, brete: Path, db: Db) -> None:
    """No sequence of seek, mark and keys files one animal's name on another's moment without a question in between."""
    ready(page, brete, filmed="")
    page.keyboard.press("s")
    expect(page.locator("#mark-said")).to_contain_text("When was this filmed?")
    expect(page.locator("#filmed")).to_be_focused()
    page.locator("#filmed").fill("2026-02-01T10:15:00")
    page.locator("#filmed").focus()
    page.keyboard.type("03012026")  # after the year comes the hour
    page.keyboard.press("Backspace")
    expect(page.locator("#filmed-source")).to_have_text("Enter a day and a time.")
    page.locator("#seek").focus()
    page.keyboard.press("s")  # not with the day that stood there before
    expect(page.locator("#mark-said")).to_have_text("The moment at 0:00.00 was not marked: Enter a day and a time.")
    page.keyboard.type("0301202608")
    expect(page.locator("#filmed")).to_have_value("2026-03-01T08:15")
    expect(page.locator("#filmed-source")).to_have_text("as you said")
    page.locator("#filmed").blur()
    page.evaluate("localStorage.removeItem('operator')")

    go(page, 0.4)
    page.keyboard.press("s")
    introduce(page)
    expect(moments(page)).to_have_count(1)
    page.keyboard.press("d")
    page.keyboard.type("BR-1")
    page.keyboard.press("Enter")
    expect(page.locator("#mark-said")).to_have_text("Saved: BR-1 at 0:00.40.")
    assert named(db) == {0.4: "BR-1"}

    go(page, 1.2)  # the next moment begins without a name
    page.keyboard.press("s")
    expect(page.get_by_label("Subject")).to_have_value("")
    expect(page.locator("#recent .chip")).to_have_text(["BR-1"])
    page.get_by_label("Subject").fill("BR-2")
    go(page, 2)  # what was typed for one moment stays with it when another is marked
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(3)
    expect(page.get_by_label("Subject")).to_have_value("")
    expect(moments(page).nth(1)).to_contain_text("typed and not saved: BR-2")

    go(page, 2.4)  # the player has gone on: a name for what it shows now would be filed at 2 s
    page.get_by_label("Subject").fill("BR-4")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Is this BR-4?")).to_be_visible()
    page.keyboard.press("Enter")  # what has the focus is No
    expect(page.get_by_role("dialog", name="Is this BR-4?")).to_be_hidden()
    at(page, "0:02.00")
    expect(page.get_by_label("Subject")).to_have_value("")  # it is not this one's
    assert named(db) == {0.4: "BR-1"}
    page.get_by_label("Subject").fill("BR-3")
    page.keyboard.press("Enter")  # it stands at the moment again
    expect(page.locator("#mark-said")).to_have_text("Saved: BR-3 at 0:02.00.")

    moments(page).nth(1).get_by_role("button", name="Describe", exact=True).click()
    at(page, "0:01.20")
    expect(page.get_by_label("Subject")).to_have_value("BR-2")
    page.keyboard.press("Enter")
    expect(page.locator("#mark-said")).to_have_text("Saved: BR-2 at 0:01.20.")
    assert named(db) == {0.4: "BR-1", 1.2: "BR-2", 2.0: "BR-3"}
    who = "SELECT array_agg(DISTINCT nickname || ' ' || email || ' ' || (overlay IS NULL)::text) FROM snap"
    assert scalar(db, who) == ["Ana ana@fazenda.example true"]
    apart = "SELECT extract(epoch FROM max(filmed_at) - min(filmed_at))::float FROM snap"
    assert scalar(db, apart) == 1.6  # the video's own time, and not that of the marking

    expect(page.locator("#moments .state", has_text="clip")).to_have_count(3, timeout=PATIENCE)
    held: list[Route] = []  # an answer about one moment that comes when the form of another is open
    page.route("**/v2/snaps/*", lambda route: held.append(route), times=1)
    moments(page).nth(2).get_by_role("button", name="Correct").click()
    until(lambda: bool(held))
    moments(page).nth(0).get_by_role("button", name="Correct").click()
    expect(page.get_by_label("Subject")).to_have_value("BR-3")
    with page.expect_response("**/v2/snaps/*"):
        held[0].continue_()
    page.evaluate(DRAWN)
    expect(page.locator("#describe-title")).to_have_text("What is at 0:02.00?")


@pytest.mark.at_length  # the shortest such sequences are tried in every run, above
def test_no_sequence_of_hands_files_a_name_elsewhere(page: Page, brete: Path, db: Db) -> None:
    """Eighty turns of somebody who types the name of what the player shows, and never says yes to a question."""
    ready(page, brete)
    chance, field, form = random.Random(11), page.get_by_label("Subject"), page.locator("#describe")
    asked, question = 0, page.get_by_role("dialog")
    for _ in range(80):
        acts = ["seek", "mark", "card", "to the form"] + ["seek", "later", *["type", "save"] * 4] * form.is_visible()
        match chance.choice(acts):
            case "seek":
                go(page, chance.choice([0.4, 0.8, 1.2, 1.6]))
            case "mark":
                before = moments(page).count()
                page.evaluate("document.activeElement.blur()")
                page.keyboard.press("s")
                expect(moments(page)).to_have_count(before + 1)
            case "type":
                field.fill(f"BR {page.locator('#now').inner_text()[:7]}")
            case "save":
                field.press("Enter")
                until(
                    lambda: (
                        question.is_visible() or not form.is_visible() or page.locator("#describe-said").inner_text()
                    )
                )
                if question.is_visible():
                    asked += 1
                    page.keyboard.press(chance.choice(["Enter", "Escape"]))
                    expect(question).to_be_hidden()
            case "to the form":
                page.evaluate("document.activeElement.blur()")
                page.evaluate(DRAWN)
                page.keyboard.press("d")
                if form.is_visible() or "not described yet" in page.locator("#moments").inner_text():
                    expect(field).to_be_focused()
            case "later":
                field.press("Escape")
            case "card" if moments(page).count():
                card = moments(page).nth(chance.randrange(moments(page).count()))
                card.locator(".does button").first.click()
                expect(field).to_be_focused()
    found = named(db)
    assert {seconds: f"BR 0:0{seconds:.2f}" for seconds in found} == found
    assert asked
    assert len(found) > 1


@pytest.mark.at_length  # the first minute marks a film that shows something in every run
def test_a_film_that_shows_nothing_yet_is_not_marked_and_begins_where_somebody_has_turned(
    page: Page, brete: Path, db: Db
) -> None:
    ready(page, brete)
    held: list[Route] = []
    coming = page.expect_request("**/content*")
    page.route("**/content*", lambda route: held.append(route), times=1)
    with coming:
        page.goto(f"{page.url}&t=1.2", wait_until="commit")
    at(page, "0:01.20")
    expect(page.locator("#mark")).to_be_disabled()
    page.keyboard.press("s")
    go(page, 0.4)
    [route] = held
    route.continue_()
    expect(page.locator("#mark")).to_be_enabled()
    expect(page.locator("#frame")).to_have_text("frame 10")
    at(page, "0:00.40")
    page.locator("#seek").blur()
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(1)
    until(lambda: scalar(db, "SELECT array_agg(start_seconds)::float[] FROM snap") == [0.4])


def test_what_the_template_asks_is_judged_as_it_is_typed_and_by_the_server(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    with opened(browser, site.home) as (page, complaints):
        ready(page, brete)
        page.get_by_label("What is asked of each moment").select_option(label="Gado")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Mark").click()
        page.get_by_label("Weight, kg").fill("about 400")
        expect(page.locator("#field-peso_referencia-said")).to_contain_text("must be a number")
        page.get_by_label("Weight, kg").fill("1,050")  # a bull's, and not a mouse's
        expect(page.locator("#field-peso_referencia-said")).to_have_text("can mean 1050 or 1.05: write one of these")
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#field-brinco-said")).to_have_text("is required")
        page.get_by_label("Ear tag").fill("BR-1042")
        page.get_by_label("Weight, kg").fill("412,5")
        refusal = {"message": "Validation failed", "details": ["subject.attributes.raca: must be one of ours"]}
        body = json.dumps(refusal)
        page.route("**/subject", lambda it: it.fulfill(status=400, content_type="application/json", body=body), times=1)
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#field-raca-said")).to_have_text("must be one of ours")
        expect(page.get_by_label("Breed")).to_be_focused()
        page.get_by_label("Breed").fill("Nelore")
        page.keyboard.press("Enter")
        expect(page.locator("#mark-said")).to_contain_text("Saved: BR-1042")
        attributes = json.loads(scalar(db, "SELECT subject -> 'attributes' FROM snap WHERE NOT is_draft"))
        assert [each.get("stringValue", each.get("numberValue")) for each in attributes] == ["BR-1042", "Nelore", 412.5]

        db.execute("DELETE FROM correction")  # somebody else corrects it while the form is open
        moments(page).first.get_by_role("button", name="Correct").click()
        expect(page.get_by_label("Ear tag")).to_have_value("BR-1042")
        db.execute("UPDATE snap SET subject = jsonb_set(subject, '{id}', '\"BR-7\"'), subject_id = 'BR-7'")
        page.get_by_label("Ear tag").fill("BR-1043")
        page.keyboard.press("Enter")
        expect(page.locator("#describe-said")).to_contain_text("as BR-7")
    assert [said for said in complaints if "400" not in said and "412" not in said] == []


def test_a_name_and_an_ear_tag_that_differ_are_two_fields_and_both_stay(page: Page, brete: Path, db: Db) -> None:
    """Clients of the API may say both. A page that took the name for the ear tag would file it there, unasked."""
    ready(page, brete)
    page.evaluate(
        """async () => {
            const { items } = await (await fetch("/v2/templates")).json();
            const [video] = (await (await fetch("/v2/videos?limit=1")).json()).items;
            const values = { brinco: "A777", raca: "Nelore" };
            const said = Object.entries(values);
            const attributes = said.map(([key, stringValue]) => ({ key, type: "string", stringValue }));
            attributes.push({ key: "peso_referencia", type: "number", numberValue: 412.12345678 }); // a scale's
            const body = { videoId: video.videoId, nickname: "Ana", email: "ana@fazenda.example", startSeconds: 0.4,
                durationSeconds: 1, dataFilmagem: "2026-03-01T08:15:00Z", subject: { id: "BR-1042", attributes },
                subjectTemplateId: items.find((each) => each.name === "Gado").id };
            const headers = { "Content-Type": "application/json" };
            await fetch("/v2/snaps", { method: "POST", headers, body: JSON.stringify(body) });
        }"""
    )
    page.reload()
    moments(page).first.get_by_role("button", name="Correct").click()
    expect(page.get_by_label("Ear tag")).to_have_value("A777")
    expect(page.locator("#field-id")).to_have_value("BR-1042")
    page.get_by_label("Breed").fill("Gir")
    page.keyboard.press("Enter")
    expect(page.locator("#mark-said")).to_contain_text("Saved: BR-1042")
    subject = json.loads(scalar(db, "SELECT subject FROM snap"))
    assert (subject["id"], [each.get("stringValue", 0) for each in subject["attributes"]]) == (
        "BR-1042",
        ["A777", "Gir", 0],
    )
    assert subject["attributes"][2]["numberValue"] == 412.12345678


def test_a_hostile_name_is_shown_as_text(page: Page, brete: Path, tmp_path: Path, db: Db) -> None:
    hostile = brete.rename(tmp_path / "<img src=x onerror=alert(1)>.mp4")
    ready(page, hostile)
    expect(page.locator("#video-title")).to_have_text(hostile.name)
    page.get_by_role("button", name="Mark").click()
    page.get_by_label("Subject").fill(HOSTILE)
    page.get_by_label("Notes").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(moments(page).first.locator("b")).to_have_text(HOSTILE)
    go(page, 1)
    page.keyboard.press("s")
    expect(page.locator("#recent .chip")).to_have_text(HOSTILE)
    page.get_by_label("Subject").fill(HOSTILE)
    go(page, 2)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#sure-title")).to_contain_text("onerror")
    assert page.locator("#work b b, #work script, #sure b, #sure-title img, #video-title img, #recent img").count() == 0
    assert page.title() == "snapapp"


# --- honest states ----------------------------------------------------------------------------------------------


def test_a_damaged_file_is_said_to_be_one_and_a_line_that_is_cut_can_be_given_up(
    browser: Browser, site: Server, brete: Path, tmp_path: Path
) -> None:
    """In Portuguese, and so are the words of the server."""
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(brete.read_bytes()[:2000])
    no_video = tmp_path / "page.mp4"
    no_video.write_text("<html>" * 100)
    with opened(browser, site.home, locale="pt-BR") as (page, complaints):
        expect(page.locator("#film-said")).to_contain_text("Ainda não há vídeo")
        expect(page.locator("#template option", has_text="Padrão")).to_have_count(1)
        held: list[Route] = []
        page.route("**/v2/uploads/*", lambda route: held.append(route), times=1)
        with page.expect_request(lambda request: request.method == "PATCH"):
            send(page, brete, damaged, no_video)
        page.locator("#uploads li", has_text="brete.mp4").get_by_role("button", name="Cancelar").click()
        expect(page.locator("#uploads li", has_text="brete.mp4")).to_contain_text("cancelado")
        expect(page.locator("#uploads li", has_text="page.mp4")).to_contain_text("envie mp4, mov, mkv, webm, ts")
        page.locator("#videos button", has_text="damaged.mp4").click()
        expect(page.locator("#film-said")).to_contain_text(
            "Este arquivo não pode ser usado: o arquivo não contém imagens"
        )
        expect(page.locator("#videos li", has_text="damaged.mp4")).to_contain_text("não pode ser usado")
        expect(page.locator("#mark")).to_be_disabled()
        page.keyboard.press("s")
        expect(moments(page)).to_have_count(0)
        page.get_by_role("button", name="Excluir este arquivo").click()
        expect(page.locator("#no-videos")).to_be_visible()
    assert [said for said in complaints if "400" not in said and "ERR_FAILED" not in said] == []


def test_an_upload_goes_on_where_a_dead_server_a_person_and_a_reload_stopped_it(
    browser: Browser, serve: Callable[..., Server], brete: Path, url: str, tmp_path: Path
) -> None:
    """Killed with -9, halted, and the page loaded anew: each part begins at the byte that was missing."""
    site = serve(SNAPAPP_WORKER_ENABLED="false")
    large = tmp_path / "tarde.mp4"
    large.write_bytes(brete.read_bytes() + (12 * 2**20).to_bytes(4, "big") + b"free" + bytes(12 * 2**20 - 8))
    line = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 1_500_000}

    def there() -> int:
        return sum(file.stat().st_size for file in site.folder.rglob(".resumable/*/*/bytes"))

    def parts(asked: list[int]) -> list[int]:
        return [offset for offset in asked if offset >= 0]

    with opened(browser, site.home) as (page, _):
        network = page.context.new_cdp_session(page)
        network.send("Network.emulateNetworkConditions", line)
        began: list[int] = []
        page.on("request", lambda asked: began.append(int(asked.headers.get("upload-offset", "-1"))))
        send(page, large)
        uploading = page.locator("#uploads li", has_text="tarde.mp4")
        until(lambda: page.evaluate("1") and there() > 500_000)
        assert site.process
        site.process.kill()
        site.process.wait()
        dead, before = there(), len(began)
        site.start()
        until(lambda: page.evaluate("1") and there() > dead + 500_000)
        uploading.get_by_role("button", name="Pause").click()
        expect(uploading).to_contain_text("halted at")
        uploading.get_by_role("button", name="Go on").click()
        halted = there()
        until(lambda: page.evaluate("1") and there() > halted + 500_000)
        page.reload()
        expect(uploading).to_contain_text("% are here. Choose the file again")
        reloaded, last = there(), len(began)
        network.send("Network.emulateNetworkConditions", line | {"uploadThroughput": -1})
        send(page, large)
        expect(page.locator("#upload-said")).to_have_text("tarde.mp4 is here.")
        expect(uploading).to_have_count(0)
        assert all(offset >= dead for offset in parts(began[before:]))
        assert all(offset >= reloaded > 0 for offset in parts(began[last:]))
        assert sorted(parts(began)) == parts(began)  # never back
        [made] = site.folder.rglob("source")
        assert made.read_bytes() == large.read_bytes()
        assert page.evaluate("localStorage.getItem('uploads')") is None


@pytest.mark.at_length  # an upload is followed to its end in every run
def test_a_file_that_is_sent_while_the_page_still_asks_what_there_is_is_shown(
    page: Page, brete: Path, tmp_path: Path
) -> None:
    ready(page, brete)
    asking: list[Route] = []
    page.route("**/v2/templates", lambda route: asking.append(route), times=1)
    with page.expect_request("**/v2/templates"):
        page.reload()
    send(page, another(brete, tmp_path / "curral.mp4"))
    expect(page.locator("#upload-said")).to_have_text("curral.mp4 is here.")
    asking[0].continue_()
    expect(page.locator("#video-title")).to_have_text("curral.mp4")
    expect(page.locator("#videos > li")).to_have_count(2)

    asked_for = f"**/v2/videos/{page.url.partition('=')[2]}"

    def hold_second(route: Route) -> None:  # the first is for the list of those opened last
        asking.append(route)
        if len(asking) == 2:
            route.continue_()

    page.route(asked_for, hold_second)
    page.reload()
    until(lambda: page.evaluate("1") and len(asking) == 3)
    send(page, another(brete, tmp_path / "lote.mp4", times=2))
    expect(page.locator("#video-title")).to_have_text("lote.mp4")
    with page.expect_response(asked_for):
        asking[2].continue_()
    page.evaluate(DRAWN)
    expect(page.locator("#video-title")).to_have_text("lote.mp4")


@pytest.mark.at_length  # api/product has the search for videos in every run
def test_a_video_is_found_by_its_name_and_the_last_ones_stand_first(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    db.execute("""INSERT INTO video (tenant, file_name, storage_key, size_bytes, sha256, probe)
        SELECT 'default', 'curral-' || n || '.mp4', 'videos/x/' || n, 1, sha256(convert_to(n::text, 'UTF8')),
               '{"compatible": false, "reason": "it is gone"}' FROM generate_series(1, 30) AS n""")
    page.reload()
    expect(page.locator("#video-title")).to_have_text("brete.mp4")
    found = page.locator("#videos > li")
    expect(found).to_have_count(20)
    page.locator("#more-videos").click()
    expect(found).to_have_count(31)
    page.get_by_label("Find a video").fill("CURRAL-27")
    expect(found).to_have_count(1)
    found.get_by_role("button").press("Enter")
    expect(page.locator("#video-title")).to_have_text("curral-27.mp4")
    expect(found.get_by_role("button")).to_be_focused()
    expect(page.locator("#opened > li")).to_contain_text("brete.mp4")
    page.get_by_label("Find a video").fill("nothing")
    expect(page.locator("#no-videos")).to_have_text("No video is called so.")
    page.goto(page.url.partition("?")[0])  # the last one again
    expect(page.locator("#video-title")).to_have_text("curral-27.mp4")


def test_a_moment_that_fails_says_why_and_can_be_tried_again_or_deleted(
    page: Page, site: Server, brete: Path, db: Db
) -> None:
    ready(page, brete)
    [source] = site.folder.rglob(str(scalar(db, "SELECT storage_key FROM video")))
    away = source.rename(source.with_name("away"))
    page.keyboard.press("s")
    first = moments(page).first
    page.locator("#ticks button").focus()
    expect(first.locator(".state")).to_have_text("failed after attempt 1 of 3", timeout=PATIENCE)
    expect(page.locator("#ticks button")).to_be_focused()
    expect(first.locator(".said-of")).to_contain_text("upload it again")
    away.rename(source)
    first.get_by_role("button", name="Try again").click()
    expect(first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)

    page.reload()  # what was there is there again, and leads back to its moment
    expect(page.locator("#videos button[aria-current]")).to_contain_text("brete.mp4")
    expect(page.locator("#ticks .tick")).to_have_count(1)
    go(page, 1)
    page.locator("#ticks .tick").click()
    at(page, "0:00.00")
    go(page, 1)
    first.locator(".snap").click()
    at(page, "0:00.00")
    first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(moments(page)).to_have_count(0)
    assert scalar(db, "SELECT count(*) FROM snap") == 0


@pytest.mark.at_length  # api/product/test_lists turns all pages in every run
def test_more_moments_than_a_page_are_all_reached(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    columns = """SELECT string_agg(column_name, ', ') FROM information_schema.columns
        WHERE table_name = 'snap' AND is_generated = 'NEVER' AND column_name NOT IN ('id', 'created_at')"""
    same = scalar(db, columns)
    older = f"""INSERT INTO snap (id, created_at, {same}) SELECT
        gen_random_uuid(), created_at - n * interval '1 minute', {same} FROM snap, generate_series(1, 120) AS n"""
    db.execute(older)
    page.reload()
    expect(moments(page)).to_have_count(50)
    moments(page).nth(1).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(moments(page)).to_have_count(49)
    page.locator("#more-moments").evaluate("(button) => (button.click(), button.click())")  # both before an answer
    expect(moments(page)).to_have_count(99)
    page.locator("#more-moments").click()
    expect(moments(page)).to_have_count(120)
    expect(page.locator("#more-moments")).to_be_hidden()

    db.execute("UPDATE snap SET ended = NULL, processed_at = NULL")
    page.reload()
    expect(moments(page)).to_have_count(50)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v2/snaps/" in request.url else None)
    page.wait_for_timeout(3000)
    assert len(asked) <= 12  # each of the fifty asked once a second


@pytest.mark.at_length  # processing has the copy, and api the stills, in every run
def test_what_the_browser_cannot_play_is_stepped_through_and_marked_until_there_is_a_copy(
    page: Page, tmp_path: Path, db: Db
) -> None:
    camera = material.make(material.GOOD["hevc"], tmp_path / "camera.mp4")
    ready(page, camera)
    expect(page.locator("#copy-said")).to_contain_text("does not play the video (hevc)")
    page.keyboard.press(".")
    page.keyboard.press(".")
    expect(page.locator("#frame")).to_have_text("frame 2")
    until(lambda: bool(page.evaluate("document.getElementById('still').naturalWidth")))
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(1)
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    assert scalar(db, "SELECT start_seconds FROM snap") == 0.08
    page.get_by_role("button", name="Make a copy that plays").click()
    expect(page.locator("#copy")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#film")).to_be_visible()
    at(page, "0:00.08")


def test_each_step_through_stills_shows_the_next_frame(page: Page, tmp_path: Path, db: Db) -> None:
    """At 29.97 frames a second the second frame begins at 33.37 ms."""
    recipe = replace(material.GOOD["hevc"], times=tuple(range(0, 75 * 3003, 3003)))
    ready(page, material.make(recipe, tmp_path / "camera.mp4"))
    for number in range(1, 5):
        page.keyboard.press(".")
        expect(page.locator("#frame")).to_have_text(f"frame {number}")
    page.keyboard.press("s")
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    assert 4 * 3003 / 90_000 <= scalar(db, "SELECT start_seconds FROM snap") < 5 * 3003 / 90_000


@pytest.mark.at_length  # api/product/test_snaps has what a job waits for in every run
def test_while_nobody_works_the_page_says_what_it_waits_for(page: Page, brete: Path, db: Db) -> None:
    db.execute("SELECT pause_queue('light')")
    try:
        send(page, brete)
        expect(page.locator("#film-said")).to_contain_text("waits to be examined. If this lasts")
        expect(page.locator("#mark")).to_be_disabled()
    finally:
        db.execute("SELECT resume_queue('light')")
    expect(page.locator("#mark")).to_be_enabled()


def test_where_tokens_are_required_one_signs_in_and_meets_nothing_internal(
    browser: Browser, serve: Callable[..., Server]
) -> None:
    site = serve(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_INTERNAL_TOKEN="open-the-door-please")
    with opened(browser, "about:blank") as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(site.home)
        page.locator("#sign-in-token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#sign-in-said")).to_contain_text("Invalid")
        expect(page.locator("#work")).to_be_hidden()
        page.locator("#sign-in-token").fill("dev-default-token")
        page.keyboard.press("Enter")
        expect(page.locator("#sign-in")).to_be_hidden()
        expect(page.locator("#film-said")).to_contain_text("no video yet")
        expect(page.locator("input[type=password]:visible")).to_have_count(0)
        page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'a@b'}))")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#sign-in-token")).to_be_visible()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert [url for url in asked if "/internal" in url] == []
    assert [said for said in complaints if "401" not in said] == []


# --- keys, and how it looks --------------------------------------------------------------------------------------


def test_the_keyboard_steps_plays_and_takes_an_interval_and_space_never_scrolls(
    page: Page, brete: Path, db: Db
) -> None:
    ready(page, brete)
    page.set_viewport_size({"width": 900, "height": 400})
    page.evaluate("document.activeElement.blur()")
    scrolled = page.evaluate("scrollY")
    for key, clock, frame in [
        (".", "0:00.04", 1), (".", "0:00.08", 2), (",", "0:00.04", 1), ("ArrowRight", "0:01.04", 26),
        ("ArrowLeft", "0:00.04", 1), ("End", "0:02.9", 74), ("Home", "0:00.00", 0),
    ]:  # fmt: skip
        page.keyboard.press(key)
        expect(page.locator("#now")).to_contain_text(clock)  # a busy browser may tell no time of the last frame
        expect(page.locator("#frame")).to_have_text(f"frame {frame}")
    said = "import('/static/words.js').then(({ clock }) => [59.994, 59.996, 119.999].map(clock))"
    assert page.evaluate(said) == ["0:59.99", "1:00.00", "2:00.00"]
    is_paused = "document.getElementById('film').paused"
    page.keyboard.press(" ")
    until(lambda: not page.evaluate(is_paused))
    page.keyboard.press(" ")
    until(lambda: bool(page.evaluate(is_paused)))
    assert page.evaluate("scrollY") == scrolled
    page.keyboard.press("l")
    for _ in range(3):  # held
        page.keyboard.down("l")
    page.keyboard.up("l")
    expect(page.get_by_label("Speed")).to_have_value("1.5")
    page.keyboard.press("k")
    go(page, 0.4)
    page.keyboard.press("i")
    go(page, 1.6)
    page.keyboard.press("o")
    expect(page.locator("#interval")).to_have_text("0:00.40 to 0:01.60")
    for detail in (1, 2):  # a double click
        page.locator("#mark").dispatch_event("click", {"detail": detail})
    expect(moments(page)).to_have_count(1)
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    taken = scalar(db, "SELECT ARRAY[start_seconds, duration_seconds, clip_seconds]::float[] FROM snap")
    assert taken == [0.4, 1.2, 1.2]
    expect(page.locator("#interval")).to_have_text("")
    page.get_by_label("Subject").press("s")  # who types marks nothing
    page.keyboard.press("Control+s")
    expect(moments(page)).to_have_count(1)


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.at_length), "dark"])
def test_on_a_phone_all_of_it_can_be_read(page: Page, brete: Path, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 380, "height": 800})
    ready(page, brete)
    page.get_by_role("button", name="Mark").click()
    page.get_by_label("Subject").fill("w" * 190)
    page.keyboard.press("Enter")
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    page.get_by_label("Keys").or_(page.locator("#keys summary")).first.click()
    assert page.evaluate(CONTRASTS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
