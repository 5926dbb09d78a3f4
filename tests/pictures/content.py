"""What the pictures show: the demo's herd at the gate in the morning, the same herd three months later in the evening,
and everything marked, described, corrected and shared through the API, as people do."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
from PIL import Image, ImageEnhance

from snapapp.demo import first_minute
from snapapp.demo import video as scene
from snapapp.demo.animals import HERD, Animal
from snapapp.jobs.rows.database import connect
from tests.jobs.working import until
from tests.web.conftest import Server

WITHIN = 300.0
TOKEN = "dev-default-token"
GAINED = 38.5  # kg, in the three months
_EVENING = datetime(2026, 6, 14, 20, 40, tzinfo=UTC)
_PEOPLE = (("Ana", "ana@fazenda.example"), ("João", "joao@fazenda.example"))
_NOTES = {
    "BR-1040": "manca da pata esquerda",
    "BR-1042": "prenhe de 5 meses",
    "BR-1044": "boa condição, separar para o lote 7",
}


@dataclass(frozen=True, slots=True)
class Content:
    """What the addresses of the pictures are made of."""

    snap: str
    other: str  # of the same animal, later
    subject: str
    link: str
    job: int


def fill(site: Server, folder: Path) -> Content:
    with httpx.Client(base_url=site.home, timeout=60) as http:
        morning = str(first_minute.VIDEO)
        until(lambda: len(_done(http)) == 3, within=WITHIN)
        template = _template(http)
        marked = [_mark(http, morning, animal, template, place) for place, animal in enumerate(HERD[:7])]
        evening = _uploaded(http, _evening(folder / "brete-7-tarde.mp4"))
        heavier = [replace(animal, weight=animal.weight + GAINED) for animal in HERD[:6]]
        later = [_mark(http, evening, animal, template, place, _EVENING) for place, animal in enumerate(heavier)]
        http.patch(
            f"/v2/snaps/{marked[4]}/subject",
            json={"nickname": "João", "attributes": [*_said(HERD[4], 4), _text("lote", "7")]},
        ).raise_for_status()
        _draft(http, morning, template)
        until(lambda: len(_done(http)) == 3 + len(marked) + len(later) + 1, within=WITHIN)
        _operate(http)
        link = http.post(f"/v2/snaps/{later[2]}/share", json={}).json()["publicShareToken"]
    return Content(marked[4], later[4], HERD[4].tag, link, _jobs(site))


def let_in(site: Server) -> str:
    """Lets people sign in; returns the link of the first of them."""
    links = []
    with httpx.Client(base_url=site.home, headers={"X-Assinatura-Token": TOKEN}) as http:
        for (name, email), role in zip(_PEOPLE, ("reviewer", "operator"), strict=True):
            made = http.post("/v2/operators", json={"nickname": name, "email": email, "role": role}).raise_for_status()
            links.append(str(made.json()["link"]).lstrip("/"))
    return links[0]


def _done(http: httpx.Client) -> list[Any]:
    items = http.get("/v2/snaps?limit=100").json()["items"]
    return [each for each in items if each["status"] == "COMPLETED"]


def _template(http: httpx.Client) -> int:
    items = http.get("/v2/templates").json()["items"]
    return next(int(each["id"]) for each in items if len(each["fields"]) > 2)


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "type": "string", "stringValue": value}


def _said(animal: Animal, place: int) -> list[dict[str, Any]]:
    said = [_text("brinco", animal.tag), _text("raca", animal.breed), _text("sexo", animal.sex)]
    said.append({"key": "peso_referencia", "type": "number", "numberValue": animal.weight})
    said.append(_text("pasto", ("Baixada", "Morro alto", "Açude")[place % 3]))
    return said + [_text("observacoes", note) for tag, note in _NOTES.items() if tag == animal.tag]


def _mark(
    http: httpx.Client,
    video: str,
    animal: Animal,
    template: int,
    place: int,
    filmed: datetime = scene.FILMED,
) -> str:
    nickname, email = _PEOPLE[place % 2]
    moment = {
        "videoId": video,
        "subjectTemplateId": template,
        "nickname": nickname,
        "email": email,
        "dataFilmagem": (filmed + timedelta(seconds=animal.passes)).isoformat(),
        "startSeconds": round(animal.passes - 0.4, 2),
        "durationSeconds": 1.0,
        "snapshotDurationSeconds": 2.0,
        "subject": {"id": animal.tag, "attributes": _said(animal, place)},
    }
    answer = http.post("/v2/snaps", json=moment)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["snapId"])


def _draft(http: httpx.Client, video: str, template: int) -> None:
    nickname, email = _PEOPLE[0]
    moment = {"videoId": video, "subjectTemplateId": template, "nickname": nickname, "email": email, "isDraft": True}
    more = {
        "startSeconds": 17.3,
        "durationSeconds": 1.0,
        "dataFilmagem": (scene.FILMED + timedelta(seconds=17.3)).isoformat(),
    }
    http.post("/v2/snaps", json=moment | more).raise_for_status()


def _uploaded(http: httpx.Client, file: Path) -> str:
    sent = http.post("/v2/videos", content=file.read_bytes(), headers={"X-File-Name": file.name})
    assert sent.status_code < 300, sent.text
    video = str(sent.json()["videoId"])
    until(lambda: http.get(f"/v2/videos/{video}").json()["videoProbe"], within=WITHIN)
    return video


# --- the second video -------------------------------------------------------------------------------------------


class _Evening(scene._Painter):
    def frame(self, number: int) -> Image.Image:
        picture = ImageEnhance.Brightness(super().frame(number)).enhance(0.9)
        return Image.blend(picture, Image.new("RGB", scene.SIZE, "#d0652c"), 0.16)


def _evening(file: Path) -> Path:
    herd = tuple(replace(animal, weight=animal.weight + GAINED) for animal in HERD)
    with (
        patch.object(scene, "HERD", herd),
        patch.object(scene, "_Painter", _Evening),
        patch.object(scene, "FILMED", _EVENING),
    ):
        scene.film(file, lambda *_: None)
    return file


# --- what whoever is on call sees -------------------------------------------------------------------------------


def _jobs(site: Server) -> int:
    """Some that went well, some that failed, one that waits in a paused queue, and the week before."""
    with connect(site.url, name="pictures") as db:
        for _ in range(12):
            db.execute("""SELECT enqueue_job('demo.hello', '{"name": "Ana"}')""")
        for _ in range(5):
            db.execute("SELECT enqueue_job('demo.fail', '{}')")
        last = "SELECT count(*) FROM snap_processing_job WHERE kind LIKE 'demo.%%' AND finished_at IS NULL"
        until(lambda: db.execute(last).fetchone() == (0,), within=WITHIN)
        for hours, kind, counts in _week():
            db.execute(
                "INSERT INTO job_history"
                " VALUES (date_trunc('hour', now()) - %s * interval '1 hour', 60, %s, %s, %s, %s, %s, %s, %s)"
                " ON CONFLICT DO NOTHING",
                [hours, kind, *counts],
            )
        db.execute("SELECT enqueue_job('mail.send', '{\"to\": \"ana@fazenda.example\"}', queue => 'mail')")
        failed = db.execute("SELECT min(id) FROM snap_processing_job WHERE kind = 'demo.fail'").fetchone()
        assert failed
        return int(failed[0])


def _operate(http: httpx.Client) -> None:
    """What the audit tells of."""
    by = {"X-Operator": "Ana"}
    for queue, reason in (("media", "a new disk"), ("mail", "the provider is being moved")):
        http.post(f"/internal/queues/{queue}/pause", json={"reason": reason}, headers=by).raise_for_status()
    http.post("/internal/queues/media/resume", headers=by).raise_for_status()


def _week() -> Iterator[tuple[int, str, list[Any]]]:
    """A farm's: much in the mornings, nothing at night."""
    for hours in range(2, 168):
        busy = max(0, 10 - abs((-hours) % 24 - 9)) * (1 + hours % 3)
        for kind, share, bucket in (("", 1.0, 20), ("snap.process", 0.8, 21), ("video.probe", 0.2, 17)):
            if count := round(busy * share):
                slow = count // 8
                waits = [0, 0, 0, 0, count - slow, 0, slow]
                runs = [*[0] * (bucket - 1), count - slow, 0, slow]
                yield hours, kind, [count, count // 12, 0, count // 9, waits, runs]
