"""Being told: by a webhook, by e-mail, and by the silence of a heartbeat. The receivers are real servers."""

import json
import os
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Finding, Severity
from snapapp.process.alarm import Alarm
from snapapp.processing import checks
from snapapp.settings.table import Settings
from tests.factory import Db, ago, make_job, make_jobs
from tests.jobs.working import until
from tests.postgres.clusters import needs_root
from tests.running import Served
from tests.sources.test_tls import certificate


class Receiver:
    """Takes webhooks at /hook, which it answers as it is told, and heartbeats at /beat."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.beats = 0
        self.answers = 200
        receiver = self

        class Visit(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if receiver.answers == 200:
                    receiver.told.append(body)
                self._answer(receiver.answers)

            def do_GET(self) -> None:
                receiver.beats += 1
                self._answer(200)

            def _answer(self, status: int) -> None:
                self.send_response(status)
                self.send_header("Location", "/beat")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Visit)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def begun(self) -> list[str]:
        return [finding["id"] for news in self.told for finding in news["begun"]]

    def over(self) -> list[str]:
        return [line for news in self.told for line in news["over"]]


class Post:
    """A mail server that takes everything; with `context` it offers encryption."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.letters: list[EmailMessage] = []
        self.refuses: bytes | None = None  # recipient
        self.farewell = "221 bye"
        post = self

        class Talk(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 ready")
                while line := self.rfile.readline():
                    match line.split()[0].upper():
                        case b"EHLO":
                            self._say("250-post\r\n250 STARTTLS" if context else "250 post")
                        case b"STARTTLS" if context:
                            self._say("220 go on")
                            self.request = context.wrap_socket(self.request, server_side=True)
                            self.setup()
                        case b"DATA":
                            self._say("354 go on")
                            letter = message_from_bytes(b"".join(iter(self._line, b"")), policy=default)
                            post.letters.append(letter)
                            self._say("250 taken")
                        case b"RCPT" if post.refuses and post.refuses in line:
                            self._say("550 nobody of that name")
                        case b"QUIT":
                            self._say(post.farewell)
                            return
                        case _:
                            self._say("250 ok")

            def finish(self) -> None:
                super().finish()
                self.request.close()  # the encrypted one, of which the server does not know

            def _line(self) -> bytes:
                line = self.rfile.readline()
                return b"" if line == b".\r\n" else line

            def _say(self, what: str) -> None:
                self.wfile.write(f"{what}\r\n".encode())

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk)
        self.url = f"smtp://127.0.0.1:{self.server.server_address[1]}"

    def written(self, words: str) -> list[EmailMessage]:
        return [letter for letter in self.letters if words in " ".join(str(letter.get_content()).split())]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from _served(Receiver())


@pytest.fixture
def post() -> Iterator[Post]:
    yield from _served(Post())


def _served(sink: Any) -> Iterator[Any]:
    thread = threading.Thread(target=sink.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield sink
    finally:
        sink.server.shutdown()
        thread.join()
        sink.server.server_close()


@pytest.fixture
def watched(tmp_path: Path, url: str, receiver: Receiver, post: Post) -> Iterator[Callable[[], Served]]:
    """Begins `snapapp serve` on one folder, with everything that tells."""
    started: list[Served] = []

    def begin() -> Served:
        wanted = {
            "SNAPAPP_DATABASE_URL": url,
            "SNAPAPP_DEMO": "false",
            "SNAPAPP_ALERT_WEBHOOK_URL": f"{receiver.url}/hook",
            "SNAPAPP_ALERT_EMAIL": "ana@fazenda.example, rui@fazenda.example",
            "SNAPAPP_ALERT_SMTP_URL": post.url,
            "SNAPAPP_HEARTBEAT_URL": f"{receiver.url}/beat",
            "SNAPAPP_ALERT_INTERVAL_MS": "300",
            "SNAPAPP_DISK_FREE_MIN_MB": "0",
        }
        started.append(Served(tmp_path, **wanted))
        return started[-1].until_up()

    yield begin
    for served in started:
        served.process.kill()
        served.process.wait()


def written_down(folder: Path) -> dict[str, Any]:
    """What was told, by channel."""
    return json.loads(next(folder.rglob("alarm.json")).read_text())  # type: ignore[no-any-return]


def forget_a_pause(db: Db) -> None:
    db.execute("SELECT pause_queue('mail', 'the server is being moved', 'ana')")
    db.execute("UPDATE job_queue SET paused_at = now() - interval '2 days'")
    make_job(db, kind="demo.hello", queue="mail")


def test_a_fault_is_told_once_with_its_cure_and_so_is_its_end(
    watched: Callable[[], Served], db: Db, receiver: Receiver, post: Post, tmp_path: Path
) -> None:
    """The tests' own server has faults of its own, such as fsync off."""
    served = watched()
    beside = watched()  # of two processes on one box one sends
    forget_a_pause(db)
    until(lambda: "QUEUE_PAUSED" in receiver.begun() and post.written("the server is being moved"))
    [news] = [news for news in receiver.told if "the server is being moved" in news["text"]]
    [fault] = [finding for finding in news["begun"] if finding["id"] == "QUEUE_PAUSED"]
    assert (fault["severity"], fault["paste"]) == ("warning", "snapapp queues resume mail")
    assert "snapapp queues resume mail" in news["text"]
    [letter] = post.written("the server is being moved")
    assert letter["To"] == "ana@fazenda.example, rui@fazenda.example"
    assert letter["Subject"].startswith("snapapp on ")
    assert "snapapp queues resume mail" in letter.get_content()

    # a letter is there before it is written down that it was sent: killed between the two, the next one sends it again
    until(lambda: "QUEUE_PAUSED" in json.dumps(written_down(tmp_path).get("email")))
    served.process.kill()  # the other one goes on, and a third one begins: both know what was told
    served.process.wait()
    watched()
    db.execute("SELECT resume_queue('mail')")
    until(lambda: [line for line in receiver.over() if "mail has been paused" in line])
    until(lambda: len(post.written("mail has been paused")) == 2)
    assert len(receiver.begun()) == len({*receiver.begun()})
    assert receiver.begun().count("QUEUE_PAUSED") == 1
    assert receiver.beats == 0  # silence, while there is something to do
    assert beside.process.poll() is None


# --- one alarm --------------------------------------------------------------------------------------------------


def settings_of(tmp_path: Path, receiver: Receiver, post: Post | None = None) -> Settings:
    settings = replace(Settings(), data_dir=tmp_path, alert_webhook_url=f"{receiver.url}/hook")
    return replace(settings, alert_email=("ana@fazenda.example",), alert_smtp_url=post.url) if post else settings


def fault(kind: str, saw: str = "3 gave up", severity: Severity = Severity.WARNING) -> Finding:
    return Finding(check="dead", id="DEAD_LETTERS", severity=severity, saw=saw, numbers={"kind": kind})


def test_a_receiver_that_is_down_is_told_when_it_is_back_and_the_other_one_not_twice(
    tmp_path: Path, receiver: Receiver, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    alarm = Alarm(settings_of(tmp_path, receiver, post), lambda: [fault("mail.send")])
    receiver.answers = 503
    alarm.look()
    assert (receiver.told, len(post.letters)) == ([], 1)
    assert "Nobody is told by webhook" in caplog.text
    assert receiver.url not in caplog.text  # such an address holds a secret
    receiver.answers = 200
    alarm.look()
    alarm.look()
    assert (receiver.begun(), len(post.letters)) == (["DEAD_LETTERS"], 1)


def test_a_receiver_that_stays_away_is_one_line_an_hour_and_one_when_it_is_back(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alarm = Alarm(settings_of(tmp_path, receiver), lambda: [fault("mail.send")])
    receiver.answers = 503
    for _ in range(3):
        alarm.look()
    assert caplog.text.count("Nobody is told by webhook") == 1
    monkeypatch.setattr("snapapp.process.alarm.monotonic", lambda: time.monotonic() + 3601)
    alarm.look()
    assert caplog.text.count("Nobody is told by webhook") == 2
    receiver.answers = 200
    for _ in range(2):
        alarm.look()
    assert caplog.text.count("by webhook arrives again") == 1


def test_the_heartbeat_is_heard_while_all_is_well_and_only_then(tmp_path: Path, receiver: Receiver) -> None:
    found: list[Finding] = [fault("mail.send", severity=Severity.NOTICE)]
    alarm = Alarm(replace(settings_of(tmp_path, receiver), heartbeat_url=f"{receiver.url}/beat"), lambda: found)
    alarm.look()
    assert (receiver.beats, receiver.told) == (1, [])
    found[:] = [fault("mail.send")]
    alarm.look()
    assert receiver.beats == 1
    found.clear()
    alarm.look()
    assert receiver.beats == 2


def test_what_a_finding_is_about_tells_two_apart_and_its_numbers_do_not(tmp_path: Path, receiver: Receiver) -> None:
    found = [fault("mail.send")]
    alarm = Alarm(settings_of(tmp_path, receiver), lambda: found)
    alarm.look()
    found[:] = [fault("mail.send", saw="4 gave up"), fault("herd.count")]
    alarm.look()
    assert [each["saw"] for news in receiver.told for each in news["begun"]] == ["3 gave up", "3 gave up"]
    found[:] = [fault("herd.count")]
    alarm.look()
    assert len(receiver.over()) == 1
    found.clear()
    alarm.look()
    assert len(receiver.over()) == 2


def test_dead_letters_of_yesterday_are_not_over_while_they_are_there(
    tmp_path: Path, url: str, db: Db, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a notice then. The next one of their kind is told again, because that may be a week later."""
    monkeypatch.setattr("snapapp.process.alarm._CALM_AFTER", 0.0)
    settings = settings_of(tmp_path, receiver)
    alarm = Alarm(settings, lambda: doctor.examine(url, checks.facts(settings, url), only=["dead"]))
    make_jobs(db, 3, "FAILED", kind="mail.send", finished_at=ago(hours=1))
    alarm.look()
    db.execute("UPDATE snap_processing_job SET finished_at = finished_at - interval '1 day'")
    for _ in range(2):
        alarm.look()
    assert (receiver.begun(), receiver.over()) == (["DEAD_LETTERS"], [])
    make_jobs(db, 1, "FAILED", kind="mail.send")
    alarm.look()
    assert (receiver.begun(), receiver.over()) == (["DEAD_LETTERS"] * 2, [])
    db.execute("DELETE FROM snap_processing_job")
    alarm.look()
    [over] = receiver.over()
    assert over.startswith("warning: Dead letters of the kind mail.send: 4, 1 of them")


def test_a_number_that_goes_to_and_fro_at_its_limit_is_told_once(tmp_path: Path, receiver: Receiver) -> None:
    found: list[Finding] = []
    alarm = Alarm(settings_of(tmp_path, receiver), lambda: found)
    for severity in (Severity.WARNING, Severity.NOTICE) * 3:
        found[:] = [fault("mail.send", severity=severity)]
        alarm.look()
    assert (receiver.begun(), receiver.over()) == (["DEAD_LETTERS"], [])


def test_two_of_one_kind_are_two(tmp_path: Path, url: str, db: Db, receiver: Receiver) -> None:
    settings = settings_of(tmp_path, receiver)
    alarm = Alarm(settings, lambda: doctor.examine(url, checks.facts(settings, url), only=["schedules"]))
    for name in ("reports.nightly", "herd.weekly"):
        db.execute("INSERT INTO job_schedule (name, spec) VALUES (%s, '0 3 * * *')", [name])
        alarm.look()
    assert receiver.begun() == ["SCHEDULE_UNDECLARED"] * 2


def test_no_kind_that_fails_is_told_as_over_because_many_others_fail_more(
    tmp_path: Path, url: str, db: Db, receiver: Receiver
) -> None:
    settings = settings_of(tmp_path, receiver)
    only = ["dead", "repeated", "suspects"]
    alarm = Alarm(settings, lambda: doctor.examine(url, checks.facts(settings, url), only=only))
    retried = "INSERT INTO job_history VALUES (date_trunc('minute', now()), 1, %s, 0, 0, 0, %s, '{}', '{}')"
    for many, kinds in enumerate((["mail.send"], [f"noisy{number}" for number in range(12)]), start=1):
        for kind in kinds:
            make_jobs(db, many, "FAILED", kind=kind)
            make_jobs(db, many, "RETRY_WAIT", kind=kind, gate="alone", losses=2)
            db.execute(retried, [kind, 3 * many])
        alarm.look()
    assert (len(receiver.begun()), receiver.over()) == (3 * 13, [])


def test_a_limit_is_one_fault_whatever_it_holds_back(tmp_path: Path, url: str, db: Db, receiver: Receiver) -> None:
    settings = settings_of(tmp_path, receiver)
    alarm = Alarm(settings, lambda: doctor.examine(url, checks.facts(settings, url), only=["limits"]))
    for name in ("gate", "camera"):
        db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES (%s, 0)", [f"key:{name}*"])
        for kind in ("herd.count", "mail.send"):
            make_job(db, kind=kind, concurrency_key=f"{name} of {kind}", next_retry_at=ago(minutes=9))
        alarm.look()
    assert [finding["numbers"]["limit"] for news in receiver.told for finding in news["begun"]] == [
        "key:gate*",
        "key:camera*",
    ]


def test_a_database_that_is_away_is_told_and_ends_nothing_that_was_told_before(
    tmp_path: Path, url: str, db: Db, receiver: Receiver
) -> None:
    settings = replace(settings_of(tmp_path, receiver), alert_interval=timedelta(milliseconds=100))
    where = [url]
    alarm = Alarm(settings, lambda: doctor.examine(where[0], checks.facts(settings, url), only=["queues"]))
    forget_a_pause(db)
    alarm.look()
    where[0] = "postgresql://127.0.0.1:1/nowhere"
    alarm.look()
    alarm.look()
    assert receiver.begun() == ["QUEUE_PAUSED", "DATABASE_AWAY"]
    assert receiver.over() == []
    where[0] = url
    alarm.look()
    [over] = receiver.over()
    assert over.startswith("critical: The database does not answer")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"webhook": 3}', b"\xff\xfe"])
def test_a_file_that_cannot_be_read_loses_no_news(tmp_path: Path, receiver: Receiver, content: bytes) -> None:
    (tmp_path / "alarm.json").write_bytes(content)
    Alarm(settings_of(tmp_path, receiver), lambda: [fault("mail.send")]).look()
    assert receiver.begun() == ["DEAD_LETTERS"]


def test_a_file_that_may_not_be_read_keeps_nobody_from_being_told(tmp_path: Path, receiver: Receiver) -> None:
    """Such as root's. A folder of that name refuses root, too."""
    (tmp_path / "alarm.json").mkdir()
    alarm = Alarm(settings_of(tmp_path, receiver), lambda: [fault("mail.send")])
    for _ in range(3):
        alarm.look()
    assert receiver.begun() == ["DEAD_LETTERS"]


@needs_root
def test_what_root_writes_down_is_the_folders_owners(tmp_path: Path, receiver: Receiver) -> None:
    """Or the service, which is another user, could not lock it any more, and would tell nobody."""
    os.chown(tmp_path, 12345, 12345)
    settings = replace(settings_of(tmp_path, receiver), alert_interval=timedelta(milliseconds=100))
    alarm = Alarm(settings, lambda: [fault("mail.send")])
    alarm.start()
    until((tmp_path / "alarm.json").exists)
    alarm.stop()
    assert {path.name: path.stat().st_uid for path in tmp_path.iterdir()} == dict.fromkeys(
        ["alarm.json", "alarm.lock"], 12345
    )


def test_where_the_file_cannot_be_written_nothing_is_told_twice(tmp_path: Path, receiver: Receiver, post: Post) -> None:
    """As on a full disk, which is told of itself. A folder of that name refuses root, too."""
    settings = settings_of(tmp_path, receiver, post)
    alarm = Alarm(settings, lambda: [fault("mail.send")])
    (tmp_path / "alarm.new").mkdir()
    for _ in range(3):
        alarm.look()
    assert (receiver.begun(), len(post.letters)) == (["DEAD_LETTERS"], 1)
    (tmp_path / "alarm.new").rmdir()
    alarm.look()
    Alarm(settings, lambda: [fault("mail.send")]).look()
    assert (receiver.begun(), len(post.letters)) == (["DEAD_LETTERS"], 1)


def test_a_password_is_not_sent_in_the_clear(tmp_path: Path, receiver: Receiver, post: Post) -> None:
    safe = replace(settings_of(tmp_path, receiver, post), alert_smtp_url=post.url.replace("//", "//ana:geheim@"))
    Alarm(safe, lambda: [fault("mail.send")]).look()
    assert (receiver.begun(), post.letters) == (["DEAD_LETTERS"], [])


def test_what_a_mail_server_has_taken_is_not_sent_again_whatever_it_says_at_the_end(
    tmp_path: Path, receiver: Receiver, post: Post
) -> None:
    post.farewell = "451 not now"
    settings = settings_of(tmp_path, receiver, post)
    for _ in range(2):
        Alarm(settings, lambda: [fault("mail.send")]).look()
    assert len(post.letters) == 1


def test_who_is_refused_by_a_mail_server_is_said_and_the_others_are_told_once(
    tmp_path: Path, receiver: Receiver, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    post.refuses = b"rui@"
    both = ("ana@fazenda.example", "rui@fazenda.example")
    settings = replace(settings_of(tmp_path, receiver, post), alert_email=both)
    for _ in range(2):
        Alarm(settings, lambda: [fault("mail.send")]).look()
    assert len(post.letters) == 1
    assert caplog.text.count("refuses rui@fazenda.example of SNAPAPP_ALERT_EMAIL: 550 nobody of that name") == 1


def test_the_worst_fault_is_the_title(tmp_path: Path, receiver: Receiver) -> None:
    worst = fault("herd.count", saw="the disk is full", severity=Severity.CRITICAL)
    Alarm(settings_of(tmp_path, receiver), lambda: [fault("mail.send"), worst]).look()
    title, first, *_ = receiver.told[0]["text"].splitlines()
    assert title.endswith(": critical: the disk is full (and 1 more)")
    assert first == "critical  dead: the disk is full"


def test_a_warning_that_becomes_critical_is_told_again_and_one_that_gets_better_is_not(
    tmp_path: Path, receiver: Receiver
) -> None:
    full = fault("mail.send", saw="9 of 9 are in use", severity=Severity.CRITICAL)
    for found in ([fault("mail.send")], [full], [fault("mail.send")], [full], []):
        Alarm(settings_of(tmp_path, receiver), found.copy).look()
    assert [each["saw"] for news in receiver.told for each in news["begun"]] == ["3 gave up", "9 of 9 are in use"]
    assert receiver.over() == ["critical: 9 of 9 are in use"]


def test_a_check_that_fails_ends_nothing_that_it_told_before(tmp_path: Path, receiver: Receiver) -> None:
    late = Finding(check="dead", id="CHECK_FAILED", severity=Severity.WARNING, saw="No answer within 2 s")
    looks: list[list[Finding]] = [[fault("mail.send")], [late], [fault("mail.send")], []]
    for found in looks:
        Alarm(settings_of(tmp_path, receiver), found.copy).look()
    assert receiver.begun() == ["DEAD_LETTERS", "CHECK_FAILED"]
    assert receiver.over() == ["warning: No answer within 2 s", "warning: 3 gave up"]


def test_a_receiver_that_has_moved_was_not_told(tmp_path: Path, receiver: Receiver) -> None:
    """urllib would ask for the new place by GET, without what there is to tell."""
    alarm = Alarm(settings_of(tmp_path, receiver), lambda: [fault("mail.send")])
    receiver.answers = 302
    alarm.look()
    assert (receiver.told, receiver.beats) == ([], 0)
    receiver.answers = 200
    alarm.look()
    assert receiver.begun() == ["DEAD_LETTERS"]


def test_an_address_that_cannot_be_sent_to_silences_no_other(tmp_path: Path, receiver: Receiver, post: Post) -> None:
    settings = replace(settings_of(tmp_path, receiver, post), alert_webhook_url=f"{receiver.url}/fazenda-são-josé")
    Alarm(settings, lambda: [fault("mail.send")]).look()
    assert len(post.letters) == 1


def test_a_data_folder_that_nobody_else_made_is_made(tmp_path: Path, receiver: Receiver) -> None:
    """With a PostgreSQL server, a bucket and a secret of the settings nothing else is kept there."""
    settings = replace(settings_of(tmp_path / "new", receiver), alert_interval=timedelta(milliseconds=100))
    alarm = Alarm(settings, lambda: [fault("mail.send")])
    alarm.start()
    until(receiver.begun)
    alarm.stop()


def test_it_may_be_stopped_twice_and_before_it_starts(tmp_path: Path, receiver: Receiver) -> None:
    alarm = Alarm(settings_of(tmp_path, receiver), list)
    alarm.stop()
    alarm.start()
    alarm.stop()
    alarm.stop()


@pytest.mark.parametrize(("account", "comes"), [("", True), ("ana:geheim@", False)])
def test_a_mail_server_vouches_for_itself_only_where_no_password_is_sent(
    tmp_path: Path, receiver: Receiver, caplog: pytest.LogCaptureFixture, account: str, comes: bool
) -> None:
    """As the one of a fresh Debian does on localhost, which is the default."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    with contextmanager(_served)(Post(context)) as post:
        settings = replace(settings_of(tmp_path, receiver, post), alert_smtp_url=post.url.replace("//", f"//{account}"))
        Alarm(settings, lambda: [fault("mail.send")]).look()
        assert bool(post.letters) is comes
    assert ("CERTIFICATE_VERIFY_FAILED" in caplog.text) is not comes
