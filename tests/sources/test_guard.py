"""Where a URL may lead. The rows are of the seeds' safety list (S28, D12) and failure-modes 4.1 (SSRF)."""

import ipaddress
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapapp.sources import Limits, Reason, SourceRefused, SourceUnavailable, guard, open_remote
from tests.sources.conftest import Open
from tests.sources.names import Resolver
from tests.sources.server import Film, Listener, Server, Visit

QUICK = Limits(timeout=timedelta(seconds=2), stall=timedelta(seconds=1))


def refusal(url: str, limits: Limits = QUICK) -> SourceRefused:
    with pytest.raises(SourceRefused) as caught:
        open_remote(url, limits)
    return caught.value


# --- URLs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "video.mp4",
        "//cdn.example/v.mp4",
        "file:///etc/passwd",
        "ftp://cdn.example/v.mp4",
        "gopher://cdn.example/",
        "data:video/mp4;base64,AAAA",
        "concat:http://a/|http://b/",
        "http:",
        "http://",
        "http:///v.mp4",
        "http:cdn.example/v.mp4",
        "http:\\\\cdn.example\\v.mp4",
        "http://cdn.example\\@127.0.0.1/",
        "http://user:secret@cdn.example/",
        "http://user@cdn.example/",
        "http://@cdn.example/",
        "http://cdn.example:0x50/",
        "http://cdn.example:65536/",
        "http://cdn.example:-1/",
        "http://cdn.example:８０/",
        "http://cdn example/",
        "http://cdn..example/",
        "http://.example/",
        "http://cdn.example../",
        "http://-cdn.example/",
        "http://cdn%2eexample/",
        "http://cdn.example%00.evil/",
        "http://cdn_ex ample/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 127 + "example/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[v1.x]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://cdn.example/\r\nX-Evil: 1",
        "http://cdn.example/a\tb",
        "http://cdn.example/\x00",
        "http://cdn.example/\u2028",
        "http://cdn.example/\ud800",
        "http://cdn.example/" + "a" * 5000,
    ],
)
def test_what_is_no_url_for_a_video_is_refused(url: str) -> None:
    error = refusal(url)
    assert error.reason is Reason.BAD_URL
    assert "secret" not in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 200


def test_a_name_that_is_too_long_for_one_is_not_converted() -> None:
    """The conversion takes time in the square of the length: more than 1 s for this one."""
    began = thread_time()
    refusal("http://" + "".join(map(chr, range(0x4E00, 0x5D00))) + "/")
    assert thread_time() - began < 0.3


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "127.0.0.1.2",
        "256.0.0.1",
        "cdn.example.0x7f",
        "１２７.０.０.１",
        "127。0。0。1",
        "ⓛⓞcalhost",
        "ｌocalhost",
        "faß.example",
        "℀.example",
    ],
)
def test_a_host_in_disguise_is_refused_whatever_the_resolver_would_make_of_it(host: str) -> None:
    assert refusal(f"http://{host}/v.mp4").reason is Reason.BAD_URL


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("http://cdn.example", "cdn.example", 80, "/"),
        ("HTTPS://CDN.Example:/V.mp4", "cdn.example", 443, "/V.mp4"),
        ("https://cdn.example.:8443/v.mp4?a=1&b=/#t=10", "cdn.example", 8443, "/v.mp4?a=1&b=/"),
        (" http://cdn.example/my video é.mp4 ", "cdn.example", 80, "/my%20video%20%C3%A9.mp4"),
        ("http://cdn.example/a%20b?c%2Fd", "cdn.example", 80, "/a%20b?c%2Fd"),
        ("http://bücher.example/", "xn--bcher-kva.example", 80, "/"),
        ("http://bu\u0308cher.example/", "xn--bcher-kva.example", 80, "/"),
        ("http://[2606:4700::0:1111]:8080/v", "2606:4700::1111", 8080, "/v"),
        ("http://8.8.8.8/v", "8.8.8.8", 80, "/v"),
    ],
)
def test_urls_as_people_write_them(url: str, host: str, port: int, path: str) -> None:
    parsed = guard.source_url(url)
    assert (parsed.host, parsed.port, parsed.path) == (host, port, path)
    assert guard.source_url(parsed.url) == parsed


@given(st.text(max_size=60))
def test_any_text_is_a_place_or_a_refusal(text: str) -> None:
    for url in (text, f"http://{text}", f"https://cdn.example/{text}", f"http://cdn.example:{text}/"):
        try:
            said = guard.source_url(url).url
        except SourceRefused as error:
            said = str(error)
        else:
            assert said.isascii()
            assert " " not in said
        assert said.isprintable()


# --- Addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "127.255.255.254",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::808:808",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "3fff::1",
        "2606:4700::5efe:7f00:1",
        "2606:4700::200:5efe:7f00:1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_that_is_not_public_is_refused_before_anybody_connects(address: str) -> None:
    assert not guard.is_public(ipaddress.ip_address(address))
    error = refusal(f"http://[{address}]/" if ":" in address else f"http://{address}/")
    assert error.reason is Reason.FORBIDDEN_ADDRESS


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert guard.is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_nothing_is_public_that_the_registries_call_private(address: Any) -> None:
    if guard.is_public(address):
        assert address.is_global
        assert not address.is_multicast


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost.", "LOCALHOST"])
def test_a_listener_on_loopback_hears_nothing(host: str) -> None:
    """D12: the address is judged before anybody connects to it, not the scheme alone."""
    with Listener() as listener:
        error = refusal(f"http://{host}:{listener.port}/v.mp4")
        assert error.reason is Reason.FORBIDDEN_ADDRESS
        assert "127.0.0.1" not in str(error).replace(host, "")
        assert listener.visitors == 0


def test_the_listener_would_have_heard_a_connection() -> None:
    with Listener() as listener:
        socket.create_connection(("127.0.0.1", listener.port)).close()
        assert listener.visitors == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_loopback_is_not_followed(server: Server, opened: Open, status: int) -> None:
    """D12: every hop is judged, though the first host is allowed."""
    with Listener() as listener:
        server.acts["/v"] = lambda visit: visit.say(status, Location=f"http://127.0.0.1:{listener.port}/")
        with pytest.raises(SourceRefused) as caught:
            opened("/v")
        assert caught.value.reason is Reason.FORBIDDEN_ADDRESS
        assert listener.visitors == 0
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://cdn.example/", "http://u:p@cdn.example/", "http://cdn^example/"]
)
def test_a_redirect_to_what_is_no_url_for_a_video_is_refused(server: Server, opened: Open, location: str) -> None:
    server.acts["/v"] = lambda visit: visit.say(302, Location=location)
    with pytest.raises(SourceRefused) as caught:
        opened("/v")
    assert caught.value.reason is Reason.BAD_URL


@pytest.mark.parametrize("port", [1, 22, 25, 79, 81, 110, 444, 1023, 2049, 6000, 6667])
def test_a_port_that_is_not_for_videos_is_refused(port: int) -> None:
    error = refusal(f"http://8.8.8.8:{port}/")
    assert (error.reason, f"Port {port}" in str(error)) == (Reason.FORBIDDEN_ADDRESS, True)


@pytest.mark.parametrize(
    ("hosts", "url", "is_exempt"),
    [
        ({"nas"}, "http://nas/", True),
        ({"nas"}, "https://NAS.:8443/", True),
        ({"nas"}, "http://nas:22/", False),
        ({"nas"}, "http://nas.example/", False),
        ({"nas:22"}, "http://nas:22/", True),
        ({"nas:22"}, "http://nas/", False),
        ({"NAS:80"}, "http://nas/", True),
        ({"10.0.0.1:9000"}, "http://10.0.0.1:9000/", True),
        ({"[0:0::1]:9000"}, "http://[::1]:9000/", True),
        ({"[::1]"}, "http://[::1]:9000/", True),
        (set(), "http://nas/", False),
    ],
)
def test_an_exemption_is_for_a_host_on_usual_ports_or_for_one_port(hosts: set[str], url: str, is_exempt: bool) -> None:
    assert guard.is_among(guard.source_url(url), hosts) is is_exempt


# --- Names that answer differently each time ----------------------------------------------------------------


def test_the_connection_goes_to_the_address_that_was_judged_and_no_second_lookup_is_made(
    server: Server, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.acts["/v"] = Film(b"film")
    resolver = Resolver(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    allowed = frozenset({f"moving.example:{server.port}"})
    with (
        Listener("127.0.0.2", server.port) as elsewhere,
        open_remote(server.url("/v", "moving.example"), Limits(allowed_hosts=allowed, folder=limits.folder)) as file,
    ):
        assert file.read() == b"film"
        assert (resolver.lookups, elsewhere.visitors) == (1, 0)
    assert server.requests[0].headers["host"] == f"moving.example:{server.port}"


def test_a_name_that_turns_private_after_the_judgement_leads_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with Listener() as listener:
        resolver = Resolver(monkeypatch, ["192.31.196.1"], ["127.0.0.1"])
        limits = Limits(timeout=timedelta(milliseconds=300), stall=timedelta(milliseconds=300))
        with pytest.raises(SourceUnavailable):
            open_remote(f"http://rebinding.example:{listener.port}/", limits)
        assert (resolver.lookups, listener.visitors) == (1, 0)


@pytest.mark.parametrize("answer", [["8.8.8.8", "127.0.0.1"], ["2606:4700::1111", "::1"], ["fe80::1%1"]])
def test_one_private_address_among_public_ones_condemns_the_name(
    answer: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Resolver(monkeypatch, answer)
    assert refusal("http://both.example/").reason is Reason.FORBIDDEN_ADDRESS


@pytest.mark.parametrize("says_so", [True, False])
def test_each_new_connection_is_judged_anew(
    server: Server, limits: Limits, monkeypatch: pytest.MonkeyPatch, says_so: bool
) -> None:
    film = Film(bytes(2_000_000))

    def then_close(visit: Visit) -> None:
        part = film.asked(visit)
        assert part is not None
        more = {"Connection": "close"} if says_so else {}
        visit.say(206, bytes(len(part)), film.named(), Content_Range=film.of(part), **more)
        visit.close_connection = True

    server.acts["/v"] = then_close
    Resolver(monkeypatch, ["127.0.0.1"], ["127.0.0.1", "10.0.0.1"])
    monkeypatch.setattr(guard, "is_public", lambda address: str(address) == "127.0.0.1")
    monkeypatch.setattr(guard, "_is_ours", lambda _: False)
    with open_remote(server.url("/v", "moving.example"), Limits(folder=limits.folder)) as file:
        with pytest.raises(SourceRefused) as caught:
            file.read()
        assert caught.value.reason is Reason.FORBIDDEN_ADDRESS


def test_a_name_that_nobody_knows_is_worth_another_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(SourceUnavailable, match=r"nowhere\.example cannot be reached: its name") as caught:
        open_remote("http://nowhere.example/", QUICK)
    assert caught.value.reason is Reason.UNREACHABLE


OURS = """
import ipaddress
from snapapp.sources import guard
print(guard.is_public(ipaddress.ip_address("8.8.4.4")), guard._is_ours(ipaddress.ip_address("8.8.4.4")))
print(guard._is_ours(ipaddress.ip_address("8.8.8.8")))
ours, other = guard.source_url("http://8.8.4.4/"), guard.source_url("http://8.8.8.8/")
print(guard.addresses(other, [], 1), guard.addresses(ours, ["8.8.4.4"], 1))
guard.addresses(ours, [], 1)
"""


def test_a_public_address_of_this_very_machine_is_ours() -> None:
    """In a network namespace of its own, where the machine has a public address."""
    script = 'ip link set lo up && ip address add 8.8.4.4/32 dev lo && exec "$0" -c "$1"'
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", script, sys.executable, OURS]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd=Path.cwd())
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if not ended.stdout:
        pytest.skip(f"no network namespace here: {ended.stderr[-200:]}")
    assert ended.stdout.splitlines() == [
        "True True",
        "False",
        "[IPv4Address('8.8.8.8')] [IPv4Address('8.8.4.4')]",
    ]
    assert "SourceRefused: 8.8.4.4 is not a public address" in ended.stderr
