"""A lab: broken and crafted videos go the whole way, through the API, the queue and the children of a real process.

`python -m tests.labs hostile --mutants 2000` exits 1 unless every answer was below 500, every snap ended as done or
with a plain reason, the process that serves is the one that was started, nothing was left in its scratch folder, and a
listener on loopback, which every crafted playlist and URL names, heard nobody.
"""

import argparse
import io
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.jobs.working import until
from tests.labs.media.mutants import broken, make_seeds
from tests.media import material
from tests.running import Served
from tests.sources.server import Listener

AT_ONCE = 8
WITHIN = 300.0
MOMENT: dict[str, Any] = {
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "startSeconds": 0.7,
    "durationSeconds": 0.6,
    "subject": {"id": "BR-1042", "attributes": []},
    "overlay": {"enabled": True, "mode": "SUBJECT_AND_BOTH"},
}
PLAYLISTS = (
    "ffconcat version 1.0\nfile '{url}'\n",
    "#EXTM3U\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\n{url}\n",
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><BaseURL>{url}</BaseURL></MPD>',
    "v=0\no=- 0 0 IN IP4 127.0.0.1\nc=IN IP4 127.0.0.1\nm=video {port} RTP/AVP 96\n",
    "RIFF....AVI LIST{url}",
)
ADDRESSES = (
    "http://127.0.0.1:{port}/a.mp4",
    "http://localhost:{port}/a.mp4",
    "http://[::ffff:127.0.0.1]:{port}/a.mp4",
    "http://2130706433:{port}/a.mp4",
    "http://0x7f.1:{port}/a.mp4",
    "http://0:{port}/a.mp4",
    "file:///etc/passwd",
    "concat:/etc/passwd|/etc/hosts",
    "rtmp://127.0.0.1:{port}/a",
)


@dataclass
class Report:
    statuses: Counter[int] = field(default_factory=Counter)  # of all answers
    endings: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Target:
    """The process under attack, and what it answered."""

    def __init__(self, served: Served, report: Report) -> None:
        self._report = report
        self.served = served
        self.api = httpx.Client(
            base_url=f"http://localhost:{served.port}",
            timeout=60,
            event_hooks={"response": [lambda answer: report.statuses.update([answer.status_code])]},
        )

    def try_bytes(self, content: bytes) -> None:
        answer = self.api.post("/v2/videos", content=content)
        if answer.status_code in (200, 201):
            self._follow({"videoId": answer.json()["videoId"]})
        else:
            self._refused(answer)

    def try_url(self, url: str) -> None:
        self._follow({"videoUrl": url})

    def _follow(self, where: dict[str, str]) -> None:
        answer = self.api.post("/v2/snaps", json=MOMENT | where)
        if answer.status_code != 202:
            self._refused(answer)
            return
        at = f"/v2/snaps/{answer.json()['snapId']}"
        until(lambda: self.api.get(at).json()["status"] != "PENDING", within=WITHIN)
        snap = self.api.get(at).json()
        self._report.endings[snap["status"]] += 1
        if snap["status"] == "FAILED":
            self._reason(snap["error"], f"{at} {where}")

    def _refused(self, answer: httpx.Response) -> None:
        self._report.endings["refused"] += 1
        self._reason(answer.json()["message"], f"{answer.request.method} {answer.request.url}")

    def _reason(self, words: str | None, where: str) -> None:
        words = words or ""
        self._report.reasons[" ".join(words.split()[:4])] += 1
        if len(words) < 15 or "Traceback" in words or "/scratch/" in words:
            self._report.problems.append(f"{where}: no plain reason: {words!r}")


def run(mutants: int, seed: int) -> Report:
    report = Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-hostile-")))
        listener = stack.enter_context(Listener())
        settings = {"SNAPAPP_DEMO": "false", "SNAPAPP_RETRY_BASE_MS": "200", "SNAPAPP_SOURCE_CACHE_MB": "0"}
        served = stack.enter_context(Served(folder, **settings).up())
        target = Target(served, report)
        stack.callback(target.api.close)
        workers = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        for url in ADDRESSES:
            target.try_url(url.format(port=listener.port))
        list(workers.map(target.try_bytes, crafted(listener.port)))
        list(workers.map(target.try_bytes, mutated(mutants, seed)))
        if served.process.poll() is not None:
            report.problems.append("the process that serves has died")
        if left := [*(folder / "scratch").glob("*")]:
            report.problems.append(f"left in scratch: {left}")
        if came := listener.visitors:
            report.problems.append(f"{came} connections reached the listener on loopback")
    if failed := [status for status in report.statuses if status >= 500]:
        report.problems.append(f"answers above 499: {failed}")
    return report


def crafted(port: int) -> Iterator[bytes]:
    url = f"http://127.0.0.1:{port}/a.mp4"
    for playlist in PLAYLISTS:
        text = playlist.format(url=url, port=port).encode()
        yield text
        yield b"\0\0\0\x18ftypmp42" + text  # past the look at the first bytes
    with tempfile.TemporaryDirectory() as folder:
        for make in (material.giant, material.sound_only):
            yield make(Path(folder) / "crafted.mp4").read_bytes()
    yield b""
    yield b"\0\0\0\x18ftypmp42" * 100_000


def mutated(count: int, seed: int) -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        make_seeds(Path(folder))
        seeds = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        data = io.BytesIO(broken(seeds, chance))
        yield data.getvalue() + number.to_bytes(4, "big")  # equal bytes would be one video


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = run(arguments.mutants, arguments.seed)
    for problem in report.problems[:20]:
        print(problem)
    endings = ", ".join(f"{count} {name}" for name, count in report.endings.most_common())
    print(f"{endings}; answers {dict(sorted(report.statuses.items()))}; {len(report.problems)} problems")
    for reason, count in report.reasons.most_common(15):
        print(f"  {count:5} {reason} …")
    return 1 if report.problems else 0
