"""What nobody means well: each is answered with a refusal that gives nothing away, and the server goes on."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any

import psycopg
import pytest
from anyio import to_thread
from fastapi import FastAPI
from psycopg import sql
from starlette.testclient import TestClient

from snapapp.api.http import strict_json
from snapapp.api.http.requests import exchange
from snapapp.api.http.requests.exchange import BODY_MAX
from snapapp.api.http.strict_json import decoded
from snapapp.cli.processes.service import Server
from tests.api.conftest import served
from tests.api.examples import NOBODY, body, mark
from tests.factory import Db, make_job, statuses
from tests.jobs.working import until
from tests.running import Served

JOBS = "/internal/jobs"
JSON = {"Content-Type": "application/json"}
TOKEN = "a-token-for-the-hostile"


# --- bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "Expecting property name"),
        (b'{"kind": "test"', "Expecting ',' delimiter"),
        (b"{'kind': 'test'}", "Expecting property name"),
        (b'{"kind": "test",}', "Expecting property name"),
        (b'{"kind": "te\nst"}', "Invalid control character"),
        (b'{"kind": "test"} {}', "Extra data"),
        (b'{"kind": "test", "kind": "other"}', "the key 'kind' stands there twice"),
        (b'{"kind": "test", "payload": {"a": {"\\ud800": 1, "\\ud800": 2}}}', "stands there twice"),
        (b'{"kind": "test", "payload": {"a": NaN}}', "NaN is not JSON"),
        (b'{"kind": "test", "payload": {"a": -Infinity}}', "-Infinity is not JSON"),
        (b'{"kind": "\xff"}', "not UTF-8"),
        ('{"kind": "test"}'.encode("utf-16"), "not UTF-8"),
        (b'{"kind": "test", "payload": {"a": ' + b"9" * 5000 + b"}}", "Exceeds the limit"),
        (b'{"kind": "test", "payload": {"a": ' + b"[" * 201 + b"]" * 201 + b"}}", "nested more than 200 deep"),
        (b'{"kind": "test", "payload": {"a": [' + b"[]," * 100_000 + b"0]}}", "more than 100000 lists and objects"),
        (b'{"kind": "test", "payload": {"a": [' + b"{}," * 100_000 + b"0]}}", "more than 100000 lists and objects"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_json_that_two_readers_could_read_in_two_ways_is_malformed(
    client: TestClient, db: Db, body: bytes, reason: str
) -> None:
    """FC21."""
    answer = client.post(JOBS, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["message"]) == (400, "Malformed JSON request")
    assert reason in answer.json()["details"][0]
    assert statuses(db) == {}


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", JSON),
        (b"null", JSON),
        (b"[]", JSON),
        (b'"x"', JSON),
        (b'{"kind": "test"}', {"Content-Type": "text/plain"}),
        (b'{"kind": "test"}', {"Content-Type": "application/xml"}),
        (b'{"kind": "test"}', {"Content-Type": b"\xff/json"}),
        (b"kind=test", {"Content-Type": "application/x-www-form-urlencoded"}),
        (b'{"kind": "test"}', {}),
        (b'{"kind": "\\ud800"}', JSON),
        (b'{"kind": "test", "payload": {"\\ud800": 1}}', JSON),
        (b'{"kind": "test", "payload": {"a": "\\udfff"}}', JSON),
        (b'{"kind": "test", "payload": {"a": "\\u0000"}}', JSON),
        (b'{"kind": "test", "payload": {"\\u0000": 1}}', JSON),
        (b'{"kind": "test", "payload": {"a": 1e999}}', JSON),
        (b'{"kind": "test", "priority": 9223372036854775808}', JSON),
        (b'{"kind": "test", "priority": 1e999}', JSON),
    ],
)
def test_a_body_that_is_no_job_is_a_bad_request(client: TestClient, db: Db, body: bytes, headers: Any) -> None:
    """FC21."""
    answer = client.post(JOBS, content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"timestamp", "status", "error", "message", "details"}
    assert ("Content-Type should be application/json" in answer.text) == (headers is not JSON)
    assert statuses(db) == {}


def test_a_refusal_repeats_little_of_what_was_sent(client: TestClient) -> None:
    endless = json.dumps({"kind": "test", "x" * 1_000_000: 1, "payload": {"\ud800" * 10_000: 1}})
    answer = client.post(JOBS, content=endless.encode(), headers=JSON)
    assert answer.status_code == 400
    assert len(answer.content) < 2000


def test_doubled_keys_are_found_without_looking_at_every_pair(client: TestClient) -> None:
    many = ",".join(f'"{number}":1' for number in range(150_000))
    answer = client.post(JOBS, content=f'{{{many},"149999":2}}'.encode(), headers=JSON)
    assert answer.json()["details"] == ["the key '149999' stands there twice"]
    assert answer.elapsed.total_seconds() < 5, "by pairs it would be minutes"


# --- sizes ------------------------------------------------------------------------------------------------------


PILED = "a" + "\u0301" * 10_000 + "\u0316" * 10_000  # accents that Unicode wants in the other order


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v2/snaps", {"subject": {"id": PILED}}),
        ("/v2/snaps", {"email": PILED}),
        ("/v2/snaps", {"subject": {"attributes": [{"key": PILED, "type": PILED, "stringValue": PILED}]}}),
        (f"/v2/snaps/{NOBODY}/cancel", {"nickname": PILED}),
    ],
)
def test_accents_without_an_end_on_one_letter_keep_nobody_waiting(
    client: TestClient, path: str, sent: dict[str, Any]
) -> None:
    """Putting them in order takes time in the square of their number, and no other thread runs meanwhile: 80 kB of a
    stranger stopped the server for 18 s."""
    began = process_time()
    answer = client.post(path, json=body(**sent) if path == "/v2/snaps" else sent)
    assert answer.status_code == 400, answer.text
    assert process_time() - began < 0.5


def test_large_bodies_are_parsed_one_after_the_other(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty at once, of anybody, kept even the health checks waiting for 7 s."""
    both, met = threading.Barrier(2), []

    def parse(sent: bytes) -> Any:
        with suppress(threading.BrokenBarrierError):
            met.append(both.wait(0.3))
        return decoded(sent)

    monkeypatch.setattr(strict_json, "decoded", parse)
    with ThreadPoolExecutor(2) as clients:
        answers = [clients.submit(client.post, "/v2/session", content=b" " * 100_000, headers=JSON) for _ in range(2)]
        assert [answer.result().status_code for answer in answers] == [400, 400]
    assert both.broken
    assert met == []


def test_a_body_that_is_too_large_is_refused_by_its_length(client: TestClient) -> None:
    answer = client.post(JOBS, content=b" " * (BODY_MAX + 1), headers=JSON)
    assert (answer.status_code, answer.json()["message"]) == (413, f"The body is larger than {BODY_MAX} bytes")
    assert answer.headers["Connection"] == "close", "or the server would read, and throw away, all of it"


@pytest.mark.parametrize("path", [JOBS, "/v2/videos"])
def test_a_length_of_more_digits_than_python_reads_is_refused(client: TestClient, path: str) -> None:
    """The server's parser takes any number of zeros."""
    answer = client.post(path, content=b"{}", headers=JSON | {"Content-Length": "0" * 5000 + "2"})
    assert (answer.status_code, answer.headers["Connection"]) == (413, "close")


def test_a_chunked_body_without_end_is_cut_and_the_server_goes_on(url: str, tmp_path: Path) -> None:
    """A real socket: the answer does not wait for the end, which never comes, and then the connection is closed."""
    head = f"POST {JOBS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with Served(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false").up() as process:
        with socket.create_connection(("127.0.0.1", process.port), timeout=20) as connection:
            connection.sendall(f"{head}\r\n\r\n".encode() + chunk * (BODY_MAX // 65536 + 1))
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert process.ask(JOBS).status == 200


def test_a_chunked_body_that_is_too_large_is_a_413(client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LINGERS_SILENT", 0.01)
    answer = client.post(JOBS, content=(b" " * 65536 for _ in range(BODY_MAX // 65536 + 1)), headers=JSON)
    assert (answer.status_code, answer.json()["message"]) == (413, f"The body is larger than {BODY_MAX} bytes")
    assert answer.headers["Connection"] == "close"


# --- who asks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), f"{TOKEN}\u00e7"])
def test_without_the_token_nothing_is_told(url: str, tmp_path: Path, sent: str | None) -> None:
    """S25, R50."""
    with served(url, tmp_path, worker_enabled=False, internal_token=TOKEN) as client:
        for path in (JOBS, f"{JOBS}/1", "/internal/queues", "/internal/workers", "/internal/nothing"):
            answer = client.get(path, headers={} if sent is None else {"X-Internal-Token": sent.encode()})
            assert (answer.status_code, answer.json()) == (
                401,
                {"status": 401, "message": "Internal API token required"},
            )
        assert client.post(JOBS, content=b"{", headers=JSON).status_code == 401
        assert client.get(JOBS, headers={"X-Internal-Token": TOKEN}).status_code == 200


def test_no_spelling_of_a_path_leads_around_the_token(url: str, tmp_path: Path) -> None:
    spellings = ["/internal", JOBS, "//internal/jobs", "/Internal/jobs", "/x/../internal/jobs", "/%69nternal/jobs"]
    settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_WORKER_ENABLED": "false", "SNAPAPP_INTERNAL_TOKEN": TOKEN}
    with Served(tmp_path, **settings).up() as process:
        answers = {path: process.ask(path).status for path in spellings}  # it sends a path as it is
        assert {*answers.values()} <= {401, 404}, answers
        assert (answers[JOBS], answers["/%69nternal/jobs"]) == (401, 401)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1.evil.example:8000"},
        {"Host": ""},
        {"Host": "localhost", "Sec-Fetch-Site": "cross-site"},
        {"Host": "localhost", "Sec-Fetch-Site": "same-site"},
        {"Host": "localhost", "Origin": "http://evil.example"},
        {"Host": "localhost:8000", "Origin": "http://localhost:9999"},
        {"Host": "localhost", "Origin": "null"},
        {"Host": "testserver"},
    ],
)
def test_without_a_token_only_this_machine_may_ask(client: TestClient, db: Db, headers: dict[str, str]) -> None:
    """A page that a browser loaded from elsewhere reaches localhost too, by a name of its own or across sites."""
    make_job(db)
    answer = client.post(JOBS, json={"kind": "test"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
    assert len(statuses(db)) == 1
    own = {"Host": "localhost:8000", "Origin": "http://localhost:8000"}
    assert client.get(JOBS, headers=own).status_code == 200


@pytest.mark.parametrize("address", ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7", "not-an-address"])
def test_from_another_machine_no_name_opens_what_only_this_one_may_ask(client: TestClient, address: str) -> None:
    """The Host is what the client says; whoever listens on all addresses is asked from all of them."""
    stranger = TestClient(client.app, base_url="http://localhost", client=(address, 4711))
    assert stranger.get(JOBS).status_code == 403
    assert stranger.get("/actuator/liveness").status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_this_machine_may_ask_by_any_of_its_own_addresses(client: TestClient, address: str) -> None:
    assert TestClient(client.app, base_url="http://localhost", client=(address, 4711)).get(JOBS).status_code == 200


def test_behind_a_root_path_the_token_is_asked_for_as_well(url: str, tmp_path: Path) -> None:
    """`uvicorn --root-path /app` puts it before every path, and the routes look behind it."""
    with served(url, tmp_path, worker_enabled=False, internal_token=TOKEN) as client:
        for root_path in ("/app", "/app/"):
            behind = TestClient(client.app, base_url="http://localhost", root_path=root_path)
            assert behind.get(f"{root_path}{JOBS}").status_code == 401
            assert behind.get(f"{root_path}{JOBS}", headers={"X-Internal-Token": TOKEN}).status_code == 200


def test_a_path_never_begins_a_log_line_of_its_own(
    client: TestClient, db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    db.execute("CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$")
    db.execute("CREATE TRIGGER meddle BEFORE INSERT ON job_queue FOR EACH ROW EXECUTE FUNCTION meddle()")
    answer = client.post("/internal/queues/a%0D12:00:00 ERROR forged%1B/pause")
    assert answer.status_code == 500
    [said] = [record.getMessage() for record in caplog.records if "A request failed" in record.getMessage()]
    assert said == "A request failed: POST /internal/queues/a%0D12%3A00%3A00%20ERROR%20forged%1B/pause"


# --- what must stay with us -------------------------------------------------------------------------------------


def test_why_a_part_is_down_is_told_to_this_machine_and_to_whoever_has_the_token(tmp_path: Path) -> None:
    """A reason names the database's host and user, and where files lie."""
    away = "postgresql://keeper@127.0.0.1:1/ledger"
    with served(away, tmp_path, worker_enabled=False, internal_token=TOKEN) as client:
        stranger = TestClient(client.app, base_url="http://snapapp.example.com", client=("192.0.2.7", 4711))
        for path in ("/actuator/health", "/actuator/readiness"):
            told = stranger.get(path)
            assert (told.status_code, told.json()["components"]["database"]) == (503, {"status": "DOWN"})
            assert "127.0.0.1" not in told.text
            assert "error" in client.get(path).json()["components"]["database"]
            with_token = stranger.get(path, headers={"X-Internal-Token": TOKEN})
            assert "error" in with_token.json()["components"]["database"]


def test_why_the_database_was_missed_is_in_the_log_and_not_in_the_answer(tmp_path: Path, caplog: Any) -> None:
    """It may be away, or have no connection left: whoever is on call has only the log to tell these apart."""
    away = "postgresql://keeper@127.0.0.1:1/ledger"
    with served(away, tmp_path, worker_enabled=False, internal_token=TOKEN) as client:
        answer = client.get("/internal/jobs/1", headers={"X-Internal-Token": TOKEN})
    assert (answer.status_code, "127.0.0.1" in answer.text) == (503, False)
    [said] = [record.getMessage() for record in caplog.records if "met no database" in record.getMessage()]
    assert said.startswith("A request met no database: GET /internal/jobs/1: connection failed: ")
    assert "\n" not in said


def test_a_deadlock_is_not_called_an_absence(client: TestClient, db: Db) -> None:
    db.execute(
        "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'deadlock detected' USING ERRCODE = 'deadlock_detected'; END $$"
    )
    db.execute("CREATE TRIGGER meddle BEFORE INSERT ON job_queue FOR EACH ROW EXECUTE FUNCTION meddle()")
    answer = client.post("/internal/queues/a/pause")
    assert (answer.status_code, answer.json()["message"]) == (503, "Somebody changed the same rows, try again")


def test_what_the_database_says_is_never_shown(client: TestClient, url: str, db: Db, caplog: Any) -> None:
    """S25: 5xx are generic."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'secret %', NEW.payload; END $$"
        )
        admin.execute(
            "CREATE TRIGGER meddle BEFORE INSERT ON snap_processing_job FOR EACH ROW EXECUTE FUNCTION meddle()"
        )
        answer = client.post(JOBS, json={"kind": "test", "payload": {"password": "hunter2"}})
        assert (answer.status_code, answer.json()["message"]) == (500, "Internal server error")
        assert not {"secret", "hunter2", "meddle", "INSERT"} & {*answer.text.replace('"', " ").split()}
        admin.execute("DROP TRIGGER meddle ON snap_processing_job")
        admin.execute("ALTER TABLE snap_processing_job RENAME TO gone")
        answer = client.get(JOBS)
        assert (answer.status_code, answer.json()["message"]) == (503, "The database is not prepared yet")
        assert "snap_processing_job" not in answer.text
        admin.execute("ALTER TABLE gone RENAME TO snap_processing_job")
    assert client.get(JOBS).status_code == 200


def test_requests_that_wait_for_a_connection_leave_a_thread_to_those_who_have_one(client: TestClient) -> None:
    """Forty threads waited for the pool, and those who had its connections for a thread: all were 503, five seconds
    later. `/v2/videos` has a connection before its function runs, the other takes one in its function."""
    with ThreadPoolExecutor(100) as clients:
        answers = clients.map(lambda path: client.get(path).status_code, ["/v2/videos", f"/v2/snaps/{NOBODY}"] * 50)
        assert Counter(answers) == {200: 50, 404: 50}


@pytest.fixture
def four_threads(client: TestClient) -> Iterator[None]:
    """Routes have four threads instead of forty."""
    assert client.portal
    limiter = client.portal.call(to_thread.current_default_thread_limiter)
    usual = limiter.total_tokens
    client.portal.call(setattr, limiter, "total_tokens", 4)
    yield
    client.portal.call(setattr, limiter, "total_tokens", usual)


@pytest.mark.usefixtures("four_threads")
def test_an_answer_that_waits_for_a_thread_holds_no_row(client: TestClient) -> None:
    """All threads waited for the row of one request that had changed it, and that one for a thread to check its answer
    in."""
    snap = mark(client)
    paths = [f"{JOBS}/{snap['job']['jobId']}/", f"/v2/snaps/{snap['snapId']}/"]
    asked = [path + verb for path in paths for verb in ("cancel", "retry")] * 10
    with ThreadPoolExecutor(40) as clients:
        answers = Counter(clients.map(lambda path: client.post(path).status_code, asked))
    assert 503 not in answers, answers


def test_a_row_that_somebody_else_holds_is_a_503_that_says_when_to_come_back(client: TestClient, db: Db) -> None:
    job_id = make_job(db)
    with db.transaction():
        db.execute("SELECT FROM snap_processing_job WHERE id = %s FOR UPDATE", [job_id])
        answer = client.post(f"{JOBS}/{job_id}/cancel")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["message"] == "The database took too long, try again"


def test_a_database_that_takes_no_writes_is_a_503_and_is_read(client: TestClient, db: Db) -> None:
    """As a standby, or a managed server whose disk is nearly full."""
    job_id = make_job(db)
    takes_no_writes = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
    database = sql.Identifier(db.info.dbname)
    db.execute(takes_no_writes.format(database, "on"))
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    answer = client.post(f"{JOBS}/{job_id}/cancel")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert answer.json()["message"] == "The database takes no writes at the moment, try again"
    assert client.get(f"{JOBS}/{job_id}").status_code == 200


@pytest.mark.parametrize(
    ("request_id", "cleaned"),
    [
        ("r-42/a:b", "r-42/a:b"),
        ("a\tb", "ab"),
        ("x" * 100, "x" * 64),
        ("'; DROP TABLE job; --", "';DROPTABLEjob;--"),
        ("\u00e7", None),
        ("", None),
    ],
)
def test_an_id_of_a_request_is_cleaned_and_rides_along(
    client: TestClient, db: Db, request_id: str, cleaned: str | None
) -> None:
    """S25, Q48: one of which nothing is left is made anew."""
    made = client.post(JOBS, json={"kind": "test"}, headers={"X-Request-Id": request_id.encode()})
    kept = made.headers["X-Request-Id"]
    assert kept == (cleaned or kept)
    assert 0 < len(kept) <= 64
    assert kept.isascii()
    assert " " not in kept
    assert client.get(made.headers["Location"]).json()["requestId"] == kept


def test_what_is_no_http_is_refused_in_our_shape(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(FastAPI(), [])
    listening = socket.create_server(("127.0.0.1", 0))
    serving = threading.Thread(target=server.run, args=[[listening]])
    serving.start()
    try:
        until(lambda: server.started)
        with socket.create_connection(listening.getsockname(), timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost : x\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    finally:
        server.should_exit = True
        serving.join()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body).keys() == {"timestamp", "status", "error", "message", "details"}
    lines = [line for line in caplog.messages if "Invalid HTTP" in line]
    assert lines == ["Invalid HTTP request received from 127.0.0.1."]


@pytest.mark.parametrize(
    "path", ["/v2/snaps", "/v2/snaps/search?subjectId=x", "/v2/session", "/v2/snaps/{}", "/v2/videos"]
)
def test_what_is_asked_for_with_head_is_answered_as_with_get_without_a_body(client: TestClient, path: str) -> None:
    path = path.format(mark(client)["snapId"])
    got, told = client.get(path), client.head(path)
    assert (told.status_code, told.content) == (got.status_code, b"") == (200, b"")
    assert told.headers["Content-Length"] == str(len(got.content))


def test_a_stream_has_no_head(client: TestClient) -> None:
    answer = client.head("/v2/events")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")


def test_no_answer_of_a_tenant_is_kept_by_a_cache(client: TestClient) -> None:
    snap = mark(client)
    for path in ("/v2/snaps", f"/v2/snaps/{snap['snapId']}", "/v2/session", f"/v2/snaps/{NOBODY}"):
        assert client.get(path).headers.get_list("Cache-Control") == ["no-store"], path
    made = client.post("/v2/webhooks", json={"url": "https://hooks.example/", "events": ["snap.completed"]})
    assert made.headers.get_list("Cache-Control") == ["no-store"]


def test_a_full_disk_of_the_database_is_507_with_the_reason_and_reads_go_on(client: TestClient, db: Db) -> None:
    """As PostgreSQL tells it: an INSERT fails with 53100. The database is not away, and trying again is no help."""
    db.execute("""CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE 'could not extend file "base/5/16384": No space left on device' USING ERRCODE = 'disk_full'; END $$""")
    db.execute("CREATE TRIGGER no_space BEFORE INSERT ON snap_processing_job EXECUTE FUNCTION no_space()")
    refused = client.post(JOBS, json={"kind": "test"})
    assert (refused.status_code, refused.json()["error"]) == (507, "Insufficient Storage")
    assert "disk of the database is full" in refused.json()["message"]
    assert ("base/5" in refused.text, "Retry-After" in refused.headers) == (False, False)
    assert client.get(JOBS).status_code == 200
