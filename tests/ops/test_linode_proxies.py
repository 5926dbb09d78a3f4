"""ops/linode: what the proxies let through."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from snapapp.api.http.requests.exchange import BODY_MAX
from tests.jobs.working import until
from tests.ops.linode import BOX, TOKEN, ran, tool
from tests.running import free_port, is_open


class Application(ThreadingHTTPServer):
    """Stands where snapapp would, and notes what the proxy lets through."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.requests: list[tuple[str, bool]] = []  # path, and whether it came with a token
        self.bodies: list[int] = []  # the sizes of those that came whole
        self.may_end = threading.Event()  # what the event stream waits for after its first event

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


LARGE = 32 * 1024 * 1024  # bytes: more than all buffers on the way


class Answering(BaseHTTPRequestHandler):
    server: Application

    def do_GET(self) -> None:
        self.server.requests.append((self.path, bool(self.headers["X-Internal-Token"])))
        if self.path.endswith("/breaks"):
            return  # without an answer
        self.send_response(200)
        if self.path == "/film":
            self.send_header("Content-Length", str(LARGE))
            self.end_headers()
            self.wfile.write(b"." * LARGE)
        elif self.path == "/v2/events":
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            self.server.may_end.wait(30)
        else:
            self.send_header("Content-Length", "0")
            self.end_headers()

    def do_POST(self) -> None:
        announced = int(self.headers["Content-Length"])
        if len(self.rfile.read(announced)) < announced:  # the proxy has hung up
            return
        self.server.bodies.append(announced)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, *_facts: object) -> None:
        pass


@pytest.fixture
def application() -> Iterator[Application]:
    with Application() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.may_end.set()
        server.shutdown()
        thread.join()


@pytest.fixture(params=["caddy", "nginx"])
def outside(request: pytest.FixtureRequest, application: Application, tmp_path: Path) -> Iterator[httpx.Client]:
    """Somebody on the other side of the proxy, which runs from its example."""
    port = free_port()
    make = {"caddy": caddy, "nginx": nginx}[request.param]
    with running(make(tmp_path, port, application.place), tmp_path):
        until(lambda: is_open(port))
        scheme = "http" if request.param == "caddy" else "https"
        with httpx.Client(base_url=f"{scheme}://127.0.0.1:{port}", verify=False, timeout=10) as client:
            yield client


def caddy(folder: Path, port: int, upstream: str, *, waits: bool = False) -> list[str]:
    text = (BOX / "Caddyfile").read_text().replace("{\n", "{\n\tadmin off\n", 1)
    if not waits:
        text = re.sub(r"lb_try_duration \d+s", "lb_try_duration 0s", text)
    text = text.replace("snapapp.example.com {", f"http://127.0.0.1:{port} {{").replace("127.0.0.1:8000", upstream)
    (folder / "Caddyfile").write_text(text)
    return [tool("caddy"), "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"]


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    found = tool("nginx")
    certificate(folder)
    lines = (BOX / "nginx.conf").read_text().replace("127.0.0.1:8000", upstream).splitlines()
    site = "\n".join(line for line in lines if "[::]" not in line)  # a machine may have no IPv6
    site = site.replace("listen 80;", f"listen 127.0.0.1:{free_port()};").replace("listen 443", f"listen {port}")
    site = site.replace("/etc/letsencrypt/live/snapapp.example.com", str(folder))
    site = site.replace("/var/log/nginx/error.log", "stderr").replace("/var/log/nginx", str(folder))
    user = "user root;" if os.geteuid() == 0 else ""  # its children must reach the test's folder
    kept = "".join(f"{what}_temp_path {folder};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = (
        f"{user} daemon off; pid {folder}/pid; error_log stderr warn; events {{}} "
        f"http {{ access_log {folder}/access.log; {kept}\n{site}}}"
    )
    (folder / "main.conf").write_text(main)
    return [found, "-c", str(folder / "main.conf")]


def certificate(folder: Path) -> None:
    key, out = folder / "privkey.pem", folder / "fullchain.pem"
    wanted = ["-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=snapapp.example.com", "-days", "2"]
    answer = ran(tool("openssl"), "req", *wanted, "-keyout", key, "-out", out)
    assert answer.returncode == 0, answer.stderr


@contextmanager
def running(argv: list[str], folder: Path) -> Iterator[None]:
    homes = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said, env=os.environ | homes)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


INSIDE = ["/internal", "/internal/jobs/1", "//internal/jobs/1", "/%69nternal/jobs/1", "/x/../internal/jobs/1"]

INSIDE += ["/actuator/metrics", "/actuator/metrics/snap.jobs.claimed", "/metrics", "/metrics?name=x"]


def test_a_proxy_keeps_the_inside_in(outside: httpx.Client, application: Application) -> None:
    for path in INSIDE:
        assert (path, status_of(outside, path)) == (path, 404)
    assert application.requests == []


def status_of(client: httpx.Client, path: str) -> int:
    """The path goes out as it stands: a client would tidy it up."""
    url = client.base_url.copy_with(raw_path=path.encode())
    return client.send(httpx.Request("GET", url, headers={"X-Internal-Token": TOKEN})).status_code


def test_a_proxy_lets_the_rest_through_without_the_token(outside: httpx.Client, application: Application) -> None:
    for path in ("/actuator/health", "/v2/snaps/search?q=internal"):
        assert status_of(outside, path) == 200
    assert application.requests == [("/actuator/health", False), ("/v2/snaps/search?q=internal", False)]


def test_a_proxy_hands_on_an_event_at_once(outside: httpx.Client) -> None:
    with outside.stream("GET", "/v2/events") as answer:
        assert next(answer.iter_text()) == "data: first\n\n"  # the stream ends no sooner than this test


def test_a_proxy_takes_the_bodies_that_the_application_takes(outside: httpx.Client, application: Application) -> None:
    assert outside.post("/v2/snaps", content=b"x" * BODY_MAX).status_code == 200
    assert application.bodies == [BODY_MAX]


def test_a_proxy_stops_bodies_without_end(outside: httpx.Client, application: Application) -> None:
    assert outside.post("/v2/snaps", content=b"x" * 3 * BODY_MAX).is_error
    assert application.bodies == []


def test_a_browser_is_told_to_come_by_tls_only(outside: httpx.Client) -> None:
    for path in ("/", "/internal/jobs"):
        assert outside.get(path).headers.get_list("Strict-Transport-Security") == ["max-age=31536000"]


def test_a_proxy_keeps_no_copy_of_what_passes(outside: httpx.Client, tmp_path: Path) -> None:
    """nginx would write up to 1 GB of each answer, and every body, to a disk whose floor only the application knows."""
    with outside.stream("GET", "/film") as answer:
        assert sum(map(len, answer.iter_raw(4096))) == LARGE
    assert outside.post("/v2/snaps", content=b"x" * BODY_MAX).status_code == 200
    assert "temporary file" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize(
    "path", [*("/public/snaps/{}", "/public/snaps/{}/media/breaks", "/media/{}/breaks"), "/sign-in/default/{}"]
)
def test_what_opens_a_link_is_in_no_log(outside: httpx.Client, tmp_path: Path, path: str) -> None:
    answer = outside.get(path.format(TOKEN), headers={"X-Assinatura-Token": TOKEN[::-1]})
    assert answer.status_code == (502 if path.endswith("breaks") else 200)
    assert outside.get("/actuator/health").status_code == 200  # whose line comes after
    logged = "".join(log.read_text() for log in (tmp_path / "said", *tmp_path.glob("*.log")))
    assert TOKEN not in logged
    assert TOKEN[::-1] not in logged
    if outside.base_url.scheme == "https":
        assert path.format("***") in logged
