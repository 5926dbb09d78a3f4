"""The connection goes to an address, but whoever answers must prove to be the host of the URL."""

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from snapapp.sources import Limits, Reason, RemoteFile, SourceRefused, SourceUnavailable, open_remote
from snapapp.sources.cache import BLOCK
from tests.sources.names import Resolver
from tests.sources.server import Film, Server, Visit, serving

CONTENT = bytes(range(256)) * (BLOCK // 64)


def certificate(folder: Path, *, name: str = "localhost", ends_in: timedelta = timedelta(days=1)) -> Path:
    """A self-signed one with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))][: 1 if name != "localhost" else 2]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + ends_in)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def secure(pem: Path) -> Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = Server(context=context)
    server.acts["/v"] = Film(CONTENT)
    return server


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    pem = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with serving(secure(pem)) as server:
        yield server


def open_there(server: Server, host: str = "localhost", path: str = "/v", **limits: timedelta) -> RemoteFile:
    allowed = frozenset({f"{host}:{server.port}"})
    return open_remote(server.url(path, host), Limits(allowed_hosts=allowed, **limits))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "LOCALHOST."])
def test_a_host_that_proves_its_name_is_read(trusted: Server, host: str) -> None:
    with open_there(trusted, host) as file:
        assert file.read() == CONTENT
    assert trusted.requests[0].headers["host"] == f"{host.lower().removesuffix('.')}:{trusted.port}"
    assert trusted.connections == 1


def test_a_kept_connection_that_the_server_closes_is_made_anew(trusted: Server) -> None:
    film = Film(CONTENT)

    def leaving(visit: Visit) -> None:
        film(visit)
        visit.close_connection = True

    trusted.acts["/v"] = leaving
    with open_there(trusted) as file:
        assert b"".join(iter(lambda: file.read(BLOCK), b"")) == CONTENT
    assert trusted.connections == len(trusted.requests) > 1


def test_a_host_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    with serving(secure(certificate(tmp_path))) as server:
        with pytest.raises(SourceRefused, match=r"localhost cannot prove who it is: self-signed") as caught:
            open_there(server)
        assert (caught.value.reason, server.requests) == (Reason.UNTRUSTED, [])


@pytest.mark.parametrize(("name", "is_proved"), [("cdn.example", True), ("other.example", False)])
def test_the_name_to_prove_is_that_of_the_url_and_not_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_proved: bool
) -> None:
    pem = certificate(tmp_path, name=name)
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    Resolver(monkeypatch, ["127.0.0.1"])
    with serving(secure(pem)) as server:
        if is_proved:
            open_there(server, "cdn.example").close()
        else:
            with pytest.raises(SourceRefused, match=r"cdn\.example cannot prove who it is"):
                open_there(server, "cdn.example")
        assert bool(server.requests) is is_proved


@pytest.mark.parametrize(("name", "ends_in"), [("other.example", 1), ("localhost", -1)])
def test_a_certificate_for_another_name_or_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ends_in: int
) -> None:
    pem = certificate(tmp_path, name=name, ends_in=timedelta(days=ends_in))
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with serving(secure(pem)) as server:
        with pytest.raises(SourceRefused) as caught:
            open_there(server)
        assert (caught.value.reason, server.requests) == (Reason.UNTRUSTED, [])


def test_a_server_without_tls_is_no_secure_one() -> None:
    with serving(Server()) as server:
        with pytest.raises(SourceUnavailable, match=r"TLS fails|broke off"):
            open_remote(
                f"https://localhost:{server.port}/v", Limits(allowed_hosts=frozenset({f"localhost:{server.port}"}))
            )
        assert server.requests == []


@pytest.mark.timeout(10)
def test_a_byte_now_and_then_is_too_slow_under_tls_as_well(trusted: Server) -> None:
    def drip(visit: Visit) -> None:
        visit.head(200, Content_Length=10**6)
        visit.drip(iter([b"z"] * 1000))

    trusted.acts["/slow"] = drip
    with pytest.raises(SourceUnavailable) as caught:
        open_there(trusted, path="/slow", timeout=timedelta(milliseconds=500))
    assert caught.value.reason is Reason.TOO_SLOW


@pytest.mark.timeout(10)
def test_a_handshake_that_never_ends_is_too_slow() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(SourceUnavailable) as caught:
            open_remote(
                f"https://{host}/v", Limits(allowed_hosts=frozenset({host}), timeout=timedelta(milliseconds=300))
            )
        assert caught.value.reason is Reason.TOO_SLOW
