"""Measures how soon the first byte comes of each page, and of the API's answers that pages ask for, for a tenant with
1,000 videos and 100,000 snaps. This process sends the requests one after the other, in turn."""

import http.client
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter
from urllib.parse import urlencode

from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement, Target, percentile
from snapapp.bench.server import BenchServer, connect
from snapapp.bench.web import crowd
from snapapp.bench.web.served import served

_WITHIN = Target("ours", "at most", 200)  # ms
_HEADERS = {"Accept": "text/html, application/json;q=0.9", "Accept-Encoding": "gzip, br, zstd"}
_PATIENCE = 60.0  # seconds


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    with server.database() as url:
        step(f"a tenant with {plan.crowd_of_videos:,} videos and {plan.crowd_of_snaps:,} snaps")
        with connect(url) as db:
            crowd.fill(db, videos=plan.crowd_of_videos, snaps=plan.crowd_of_snaps)
        server.vacuum(url)
        with served(url, SNAPAPP_DEMO="false") as port:
            addresses = dict(_addresses(plan.crowd_of_snaps))
            _first_bytes(port, addresses, 1)  # not measured: statements get prepared, connections opened
            runs = []
            for run in range(1, plan.runs + 1):
                step(f"pages, run {run} of {plan.runs}")
                runs.append(_first_bytes(port, addresses, plan.page_asks))
    return [
        Measurement(
            name=f"web.page.{name}",
            what=f"p95 of the first byte of {name}",
            unit="ms",
            ours=[percentile(run[name], 95) for run in runs],
            target=_WITHIN,
            more={"path": path, "samples": [run[name] for run in runs]},
        )
        for name, path in addresses.items()
    ]


def _addresses(snaps: int) -> Iterator[tuple[str, str]]:
    """The names and addresses of the pages, and of the lists and searches behind them, up to the deepest page."""
    newest, other, shared = crowd.id_of("snap 2"), crowd.id_of("snap 3"), crowd.token_of(2)
    video, deep = crowd.id_of("video 0"), snaps - snaps // 10
    year = {"from": _ago(days=300), "to": _ago(days=30)}
    yield "/", "/"
    yield "/snaps", "/snaps"
    yield "/snaps, deep", f"/snaps?offset={deep}"
    yield "/snaps, filtered", _address("/snaps", q="sadio", nickname="ana", attrKey="peso", attrMin=310)
    yield "/snaps/{id}", f"/snaps/{newest}"
    yield "/snaps/compare", f"/snaps/compare?a={newest}&b={other}"
    yield "/snaps/subject", "/snaps/subject?id=boi-0"
    yield "/snaps/subject, deep", f"/snaps/subject?id=boi-0&offset={deep // 10}"
    yield "/public/snaps/{token}", f"/public/snaps/{shared}"
    yield "/ops", "/ops"
    yield "/docs", "/docs"
    yield "the session", "/v2/session"
    yield "the templates", "/v2/templates"
    yield "a snap", f"/v2/snaps/{newest}"
    yield "a snap's corrections", f"/v2/snaps/{newest}/corrections"
    yield "a snap's link", f"/v2/snaps/{newest}/share"
    yield "a video", f"/v2/videos/{video}"
    yield "videos", _address("/v2/videos", limit=20)
    yield "videos, deep", _address("/v2/videos", limit=20, offset=900)
    yield "videos by name", _address("/v2/videos", limit=20, q="brete-99")
    yield "videos that no one has", _address("/v2/videos", limit=20, q="nowhere")
    for by in ("fileName", "sizeBytes"):
        yield f"videos by {by}", _address("/v2/videos", limit=20, sortBy=by)
    yield "videos of a nickname", _address("/v2/videos/mine", nickname="ana")
    yield "snaps of a video", _address(f"/v2/videos/{video}/snaps", sortBy="createdAt", sortDir="desc")
    yield "snaps of a video, deep", _address(f"/v2/videos/{video}/snaps", offset=deep // 3)
    yield "snaps of a nickname, deep", _address("/v2/snaps/mine", nickname="ana", offset=deep // 2)
    yield "snaps", _address("/v2/snaps", limit=48)
    yield "snaps, deep", _address("/v2/snaps", limit=48, offset=deep)
    for by in ("processedAt", "resolvedStartSeconds", "dataFilmagem", "subjectId", "nickname"):
        yield f"snaps by {by}", _address("/v2/snaps", limit=48, sortBy=by)
    yield "snaps that failed, deep", _address("/v2/snaps", limit=48, status="FAILED", offset=deep // 100)
    yield "snaps of a nickname and a time", _address("/v2/snaps", limit=48, nickname="Operator 7", **year)
    for by in ("processedAt", "resolvedStartSeconds"):
        yield f"snaps of a nickname by {by}", _address("/v2/snaps", limit=48, nickname="ana", sortBy=by)
        yield f"a common word by {by}", _address("/v2/snaps/search", limit=48, q="sadio", sortBy=by)
    yield "search: a rare word", _address("/v2/snaps/search", limit=48, q="manco")
    yield "search: two words, deep", _address("/v2/snaps/search", limit=48, q="sadio boi", offset=deep)
    yield "search: a common word that failed", _address("/v2/snaps/search", limit=48, q="sadio", status="FAILED")
    yield "search: a common word of nobody", _address("/v2/snaps/search", limit=48, q="sadio", nickname="nobody")
    yield "search: the beginning of a word", _address("/v2/snaps/search", limit=48, q="a77")
    yield "search: a word that is nowhere", _address("/v2/snaps/search", limit=48, q="nowhere")
    yield "search: a subject, deep", _address("/v2/snaps/search", limit=48, subjectId="boi-0", offset=deep // 10)
    yield "search: one tag", _address("/v2/snaps/search", limit=48, attrKey="brinco", attrValue="A777")
    yield (
        "search: half of all, deep",
        _address("/v2/snaps/search", limit=48, attrKey="sexo", attrValue="F", offset=deep // 2),
    )
    yield "search: a weight", _address("/v2/snaps/search", limit=48, attrKey="peso", attrMin=450, attrMax=450.2)
    yield "search: most weights, in a time", _address("/v2/snaps/search", limit=48, attrKey="peso", attrMin=310, **year)
    for view in ("queues", "workers", "schedules", "box", "costs", "audit", "doctor"):
        yield f"/ops: {view}", f"/internal/{view}"
    yield "/ops: jobs", _address("/internal/jobs", limit=50)
    yield "/ops: jobs that failed", _address("/internal/jobs", limit=50, status="FAILED")


def _address(path: str, **query: object) -> str:
    return f"{path}?{urlencode(query)}"


def _ago(*, days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


def _first_bytes(port: int, addresses: dict[str, str], times: int) -> dict[str, list[float]]:
    """The times to the first byte in ms, by name. The addresses are requested in turn, so that other work of the
    machine affects all of them alike."""
    times_by_name: dict[str, list[float]] = {name: [] for name in addresses}
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        for _ in range(times):
            for name, path in addresses.items():
                times_by_name[name].append(_first_byte(line, path))
    finally:
        line.close()
    return times_by_name


def _first_byte(line: http.client.HTTPConnection, path: str) -> float:
    began = perf_counter()
    line.request("GET", path, headers=_HEADERS)
    answer = line.getresponse()
    taken = (perf_counter() - began) * 1000
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"GET {path} answered {answer.status}")
    return taken
