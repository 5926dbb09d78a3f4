"""Moments are marked and described at /: what is typed is filed at the moment that it was typed for."""

import json
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.web.conftest import DRAWN, HOSTILE, Server, opened
from tests.web.operating import another, at, brete, go, mark_at, moments, named, page, ready
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES, introduce
from tests.web.test_waiting import HIDE

__all__ = ["brete", "page"]


def test_a_computer_whose_clock_is_a_day_off_marks_by_the_servers_time(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    with opened(browser, site.home, timezone_id="UTC") as (page, complaints):
        filmed, said = page.locator("#filmed"), page.locator("#filmed-source")
        ready(page, brete, filmed="")
        for off, words in (
            (1, "This computer's clock is 24 hours ahead."),
            (-1, "This computer's clock is 24 hours behind."),
        ):
            now = datetime.now(UTC)
            page.clock.install(time=now + timedelta(days=off))
            page.reload()
            expect(page.locator("#mark")).to_be_enabled()
            expect(said).to_contain_text(words)
            filmed.fill(f"{now + timedelta(hours=12):%Y-%m-%dT%H:%M:%S}")
            expect(said).to_have_text(f"That has not been yet. {words}")
            filmed.fill(f"{now - timedelta(minutes=1):%Y-%m-%dT%H:%M:%S}")
            expect(said).to_have_text(f"as you said. {words}")
            with page.expect_response("**/v2/snaps") as answer:
                mark_at(page, 1.2 + 0.4 * off)
            assert answer.value.ok
        assert scalar(db, "SELECT count(*) FROM snap WHERE filmed_at BETWEEN now() - interval '1 hour' AND now()") == 2
    assert complaints == []


def test_a_name_is_filed_at_the_moment_that_it_was_typed_for_and_at_no_other(page: Page, brete: Path, db: Db) -> None:
    """No sequence of seek, mark and keys files one animal's name on another's moment without a question in between."""
    ready(page, brete, filmed="")
    page.keyboard.press("s")
    expect(page.locator("#mark-said")).to_contain_text("When was this filmed?")
    expect(page.locator("#filmed")).to_be_focused()
    page.locator("#filmed").fill("2026-02-01T10:15:00")
    page.locator("#filmed").focus()
    processor = page.context.new_cdp_session(page)
    processor.send("Emulation.setCPUThrottlingRate", {"rate": 20})  # a phone's: each key is drawn after the next came
    page.keyboard.type("03012026")  # after the year comes the hour
    page.keyboard.press("Backspace")
    expect(page.locator("#filmed-source")).to_have_text("Enter a day and a time.")
    processor.send("Emulation.setCPUThrottlingRate", {"rate": 1})
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
    its = scalar(db, "SELECT id FROM snap WHERE subject_id = 'BR-1'")  # another card may be asked for, too
    page.route(f"**/v2/snaps/{its}", lambda route: held.append(route), times=1)
    moments(page).nth(2).get_by_role("button", name="Correct").click()
    until(lambda: page.evaluate("1") and bool(held))  # the browser asks this thread, which must listen
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


@pytest.mark.at_length  # api/product has the server's judgement in every run
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

        snap = scalar(db, "SELECT id::text FROM snap")
        assert page.request.delete(f"{site.home}v2/snaps/{snap}").ok
        page.keyboard.press("Enter")
        expect(page.locator("#describe-said")).to_contain_text("somebody else has deleted this moment")
        expect(page.get_by_label("Ear tag")).to_have_value("BR-1043")
    assert [said for said in complaints if not re.search("400|404|412", said)] == []


def test_a_moment_that_somebody_else_deletes_leaves_the_list(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    """At once, or when the page is looked at again; one for which something is typed stays, to be copied."""
    with opened(browser, site.home) as (page, complaints):
        ready(page, brete)
        for seconds in (0.4, 1.2, 2):
            mark_at(page, seconds)
        for each in range(3):
            expect(moments(page).nth(each).locator(".state")).to_contain_text("clip", timeout=PATIENCE)
        page.get_by_label("Subject").fill("BR-3")

        def delete(seconds: float) -> None:
            snap = scalar(db, "SELECT id::text FROM snap WHERE start_seconds = %s", seconds)
            assert page.request.delete(f"{site.home}v2/snaps/{snap}").ok

        lists, late = re.compile(r"/v2/videos/[\w-]+/snaps\?"), list[tuple[Route, APIResponse]]()
        page.route(lists, lambda route: late.append((route, route.fetch())), times=1)
        page.evaluate(HIDE, True)
        page.evaluate(HIDE, False)
        until(lambda: page.evaluate("1") and late)
        delete(0.4)
        expect(moments(page)).to_have_count(2)
        with page.expect_response(lists):  # what is told of it afterwards brings no card back
            late[0][0].fulfill(response=late[0][1])
        page.evaluate(DRAWN)
        expect(moments(page)).to_have_count(2)
        delete(2)
        expect(page.locator("#describe-said")).to_contain_text("somebody else has deleted this moment")
        expect(moments(page).first.locator(".said-of")).to_contain_text("Somebody else has deleted this moment.")
        page.get_by_label("Subject").fill("BR-30")
        expect(page.get_by_label("Subject")).to_have_value("BR-30")
        page.evaluate(HIDE, True)
        delete(1.2)
        page.evaluate(HIDE, False)
        expect(moments(page)).to_have_count(1)
        expect(page.get_by_label("Subject")).to_have_value("BR-30")
    assert [said for said in complaints if "404" not in said] == []


def other_name(db: Db, name: str, *, at: float) -> None:
    """Somebody else corrects a moment meanwhile."""
    db.execute(
        """UPDATE snap SET subject = jsonb_set(subject, '{id}', to_jsonb(%s::text)), subject_id = %s
        WHERE start_seconds = %s""",
        (name, name, at),
    )


@pytest.mark.at_length  # a name is filed at its own moment in every run, above
def test_what_somebody_else_said_of_one_moment_changes_no_other(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    """The answer comes while the form of another moment is open, whose name was then filed at the first one."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        for seconds in (0.4, 1.2):
            mark_at(page, seconds)
            page.get_by_label("Subject").fill(f"BR-{seconds}")
            page.keyboard.press("Enter")
            expect(page.locator("#mark-said")).to_contain_text(f"Saved: BR-{seconds}")
        moments(page).nth(0).get_by_role("button", name="Correct").click()
        expect(page.get_by_label("Subject")).to_have_value("BR-1.2")
        other_name(db, "BR-7", at=1.2)
        held: list[Route] = []
        page.route(
            "**/v2/snaps/*", lambda it: held.append(it) if it.request.method == "GET" else it.continue_(), times=1
        )
        page.get_by_label("Subject").fill("BR-8")
        page.keyboard.press("Enter")
        until(lambda: page.evaluate("1") and bool(held))
        moments(page).nth(1).get_by_role("button", name="Correct").click()
        expect(page.get_by_label("Subject")).to_have_value("BR-0.4")
        with page.expect_response("**/v2/snaps/*"):
            held[0].continue_()
        page.evaluate(DRAWN)
        expect(page.locator("#describe-said")).to_be_empty()
        page.get_by_label("Subject").fill("BR-9")
        page.keyboard.press("Enter")
        expect(page.locator("#mark-said")).to_have_text("Saved: BR-9 at 0:00.40.")
        assert named(db) == {0.4: "BR-9", 1.2: "BR-7"}


def test_what_is_typed_while_a_moment_is_saved_stays_where_it_is_typed(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    """On a slow line. The answer closed the form over what was typed, and made the keys the player's: S marks."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        for seconds in (0.4, 1.2):
            mark_at(page, seconds)
            expect(moments(page).first.get_by_role("button", name="Describe", exact=True)).to_be_visible()
        expect(moments(page).first).to_contain_text(SOME_FRAMES, timeout=PATIENCE)
        old: list[tuple[Route, object]] = []  # what a window asks that wakes, answered when a name was saved
        page.route("**/snaps?*", lambda route: old.append((route, route.fetch().json())), times=1)
        for hidden in (True, False):
            page.evaluate(HIDE, hidden)
        until(lambda: page.evaluate("1") and bool(old))
        held: list[Route] = []
        page.route("**/subject", lambda route: held.append(route))
        page.get_by_label("Subject").fill("BR-1")
        page.keyboard.press("Enter")
        until(lambda: page.evaluate("1") and len(held) == 1)
        page.get_by_label("Notes").fill("limps")
        composing = {"key": "Escape", "isComposing": True, "bubbles": True}  # takes an accent back, and closes nothing
        page.get_by_label("Notes").dispatch_event("keydown", composing)
        held[0].continue_()
        expect(page.locator("#mark-said")).to_have_text("Saved: BR-1 at 0:01.20.")
        expect(page.get_by_label("Notes")).to_have_value("limps")
        expect(page.get_by_label("Notes")).to_be_focused()
        with page.expect_response("**/snaps?*"):
            old[0][0].fulfill(json=old[0][1])
        page.evaluate(DRAWN)
        assert "BR-1" in moments(page).first.inner_text()
        page.keyboard.press("Enter")
        until(lambda: page.evaluate("1") and len(held) == 2)
        moments(page).nth(1).get_by_role("button", name="Describe", exact=True).click()
        expect(page.get_by_label("Subject")).to_be_focused()
        with page.expect_response("**/subject"):
            held[1].continue_()
        expect(moments(page).first).not_to_contain_text("not saved")
        page.keyboard.type("ss")
        expect(page.get_by_label("Subject")).to_have_value("ss")
        expect(moments(page)).to_have_count(2)

        refusal = {"message": "Invalid assinatura API token"}  # the session is over
        page.keyboard.press("Enter")
        until(lambda: page.evaluate("1") and len(held) == 3)
        held[2].fulfill(status=401, json=refusal)
        expect(page.locator("#describe-said")).to_contain_text("sign in again, at the top of this page")
        expect(page.locator("#sign-in")).to_be_visible()
        expect(page.get_by_label("Subject")).to_have_value("ss")

        expect(moments(page).nth(1)).to_contain_text(SOME_FRAMES, timeout=PATIENCE)  # nothing else is asked any more
        late: list[Route] = []
        page.route("**/v2/snaps/*", lambda route: late.append(route))
        moments(page).first.get_by_role("button", name="Correct").click()
        until(lambda: page.evaluate("1") and bool(late))
        page.get_by_label("Subject").press_sequentially("7")
        with page.expect_response("**/v2/snaps/*"):
            late[0].continue_()
        page.evaluate(DRAWN)
        page.keyboard.type("8")
        expect(page.get_by_label("Subject")).to_have_value("78ss")
    assert named(db) == {1.2: "BR-1"}
    notes = "SELECT subject -> 'attributes' -> 0 ->> 'stringValue' FROM snap WHERE NOT is_draft"
    assert scalar(db, notes) == "limps"


@pytest.mark.at_length  # two videos are sent
def test_another_video_takes_nothing_from_a_form(page: Page, brete: Path, tmp_path: Path, db: Db) -> None:
    ready(page, another(brete, tmp_path / "curral.mp4"))
    ready(page, brete)
    its = page.url
    mark_at(page, 0.4)
    page.get_by_label("Subject").fill("BR-1")
    page.locator("#videos button", has_text="curral.mp4").click()
    expect(page.locator("#mark")).to_be_enabled()
    page.keyboard.press("d")  # it moved the player in the wrong video
    expect(page).to_have_url(its)
    at(page, "0:00.40")
    expect(page.get_by_label("Subject")).to_be_focused()


@pytest.mark.at_length  # two videos are sent
def test_what_was_typed_and_not_saved_is_not_lost(page: Page, brete: Path, tmp_path: Path, db: Db) -> None:
    """To nobody who shows another video, and not without a question to whoever leaves, or chooses another language."""
    ready(page, another(brete, tmp_path / "curral.mp4"))
    ready(page, brete)
    page.keyboard.press("s")
    page.get_by_label("Subject").fill("BR-1")
    expect(moments(page).get_by_role("button", name="Describe", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#videos button", has_text="curral.mp4").click()
    expect(moments(page)).to_have_count(0)
    page.locator("#videos button", has_text="brete.mp4").click()
    expect(moments(page)).to_contain_text("typed and not saved: BR-1")
    with page.expect_event("dialog", lambda dialog: (dialog.dismiss(), dialog.type == "beforeunload")[1]):
        page.get_by_role("button", name="PT").click()
    moments(page).get_by_role("button", name="Describe", exact=True).click()
    expect(page.get_by_label("Subject")).to_have_value("BR-1")


# A line is dead for a tenth of a second, where the page says so.
IMPATIENT = """(() => { const within = AbortSignal.timeout;
    AbortSignal.timeout = (limit) => within.call(AbortSignal, window.isDead ? 100 : limit); })()"""


@pytest.mark.at_length  # test_waiting has dead lines in every run
def test_on_a_dead_line_a_form_is_given_back(browser: Browser, site: Server, brete: Path, db: Db) -> None:
    """Nothing ever answered, so that no moment could be saved until the page was loaded anew."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        page.evaluate(IMPATIENT)
        page.keyboard.press("s")
        expect(moments(page).get_by_role("button", name="Describe", exact=True)).to_be_visible()
        page.route("**/subject", lambda route: None, times=1)
        page.evaluate("window.isDead = true")
        page.get_by_label("Subject").fill("BR-1")
        page.keyboard.press("Enter")
        expect(page.locator("#describe-said")).to_contain_text("timed out")
        page.evaluate("window.isDead = false")
        page.keyboard.press("Enter")
        expect(page.locator("#mark-said")).to_contain_text("Saved: BR-1")


@pytest.mark.at_length  # domain/test_marking has it in every run
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


@pytest.mark.at_length  # api/product/test_operator_pages has it in every run, and ops/test_job in a browser
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
