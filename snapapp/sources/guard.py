"""Decides whether a URL may be fetched. A name is looked up once for each connection, all its addresses are judged, and
the connection goes to one of these addresses: a second lookup could answer differently."""

import ipaddress
import re
import socket
import threading
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin, urlsplit

from snapapp.sources.errors import Reason, SourceRefused, SourceUnavailable

Address = IPv4Address | IPv6Address

LONGEST_URL = 4_096
PORTS = {"http": 80, "https": 443}

_HOST_AND_PORT = re.compile(r"(\[(?P<ipv6>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(:(?P<port>[0-9]{0,5}))?")
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_LONGEST_NAME = 253
_HOST = re.compile(rf"(?=.{{1,{_LONGEST_NAME}}}$){_LABEL}(\.{_LABEL})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_UNQUOTED = "!$%&'()*+,/:;=?@[]~"

# Ports above 1023 that browsers refuse: NFS, SIP, X11, IRC and the like.
_NOT_FOR_HTTP = frozenset(
    [1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697, 10080]
)

# Written out, because Python's `is_global` has changed between releases.
_FORBIDDEN = tuple(
    map(
        ipaddress.ip_network,
        [
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # behind a carrier's NAT
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's own services, at a public address
            "169.254.0.0/16",  # link-local, and the clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "2001::/23",  # Teredo, which wraps IPv4, and other protocols' own
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4 wraps IPv4
            "3fff::/20",  # documentation
        ],
    )
)
# All public IPv6 addresses are in here; mapped IPv4, NAT64, unique local, link-local and multicast are not.
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_ISATAP = (0x00005EFE, 0x02005EFE)  # wraps IPv4 under any prefix


@dataclass(frozen=True, slots=True)
class SourceUrl:
    """A URL in parts: the host in ASCII and lower case, the path with its query as in a request line."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def host_and_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host_and_port}{self.path}"

    @property
    def shown(self) -> str:
        """The URL for messages, without the query, which may hold signatures."""
        text = self.url.partition("?")[0]
        return text if len(text) <= 200 else f"{text[:200]}…"

    def beyond(self, location: str) -> "SourceUrl":
        """Where a redirect from here leads. Bytes of the header beyond ASCII are percent-encoded."""
        try:
            return source_url(urljoin(self.url, quote(location.encode("latin-1"), safe=_UNQUOTED + "#")))
        except ValueError:
            raise _refused_url(f"{self.shown} redirects to what is not a URL") from None


def source_url(url: str) -> SourceUrl:
    """Parses a URL, or raises what is wrong with it."""
    url = url.strip(" ")
    if len(url) > LONGEST_URL:
        raise _refused_url(f"The URL has {len(url)} characters, more than {LONGEST_URL}")
    if not url.isprintable():
        raise _refused_url("The URL holds a character that cannot be printed")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refused_url("The host of the URL cannot be read") from None
    if parts.scheme not in PORTS or not parts.netloc:
        raise _refused_url("The URL must begin with http:// or https:// and a host")
    if "@" in parts.netloc:
        raise _refused_url("The URL holds a user name or a password; remove what stands before the @")
    host, port = _host_and_port(parts.netloc)
    path = quote(parts.path or "/", safe=_UNQUOTED) + (f"?{quote(parts.query, safe=_UNQUOTED)}" if parts.query else "")
    return SourceUrl(parts.scheme, host, port or PORTS[parts.scheme], path)


def _host_and_port(text: str) -> tuple[str, int | None]:
    match = _HOST_AND_PORT.fullmatch(text)  # checked here, because urlsplit reads [::1]x as ::1
    if not match or not 1 <= int(match["port"] or 1) <= 65_535:
        raise _refused_url(f"The URL's host or port cannot be read in {_cut(text)!r}")
    host = str(_literal(IPv6Address, match["ipv6"])) if match["ipv6"] is not None else _host(match["name"])
    return host, int(match["port"]) if match["port"] else None


def _host(text: str) -> str:
    host = _ascii(text).removesuffix(".")
    if not _HOST.fullmatch(host):
        raise _refused_url(f"The URL's host {_cut(text)!r} cannot be one")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return str(_literal(IPv4Address, host))
    return host


def _literal(kind: type[IPv4Address] | type[IPv6Address], text: str) -> Address:
    """An IP address in its plain spelling only: 2130706433, 0x7f.1 and 0177.0.0.1 are loopback addresses to some
    programs and invalid to others."""
    try:
        address = kind(text)
    except ValueError:
        raise _refused_url(f"The URL's host {_cut(text)!r} is neither a name nor an address") from None
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise _refused_url(f"The URL's host {_cut(text)!r} names a network interface")
    return address


def _ascii(text: str) -> str:
    """The ASCII form of an international name. A name that the conversion changes (full-width digits, ß) is refused,
    because we would go to another host than a person reads."""
    if text.isascii():
        return text.lower()
    if len(text) > _LONGEST_NAME:  # the conversion takes time in the square of the length: 1 s for 4,000 characters
        raise _refused_url(f"The URL's host {_cut(text)!r} cannot be one")
    name = unicodedata.normalize("NFC", text).lower()
    try:
        encoded = name.encode("idna")
        if encoded.decode("idna") != name:
            raise _refused_url(f"The URL's host {_cut(text)!r} can be read in two ways; write it in its plain form")
    except UnicodeError:
        raise _refused_url(f"The URL's host {_cut(text)!r} cannot be one") from None
    return encoded.decode("ascii")


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"


def _refused_url(message: str) -> SourceRefused:
    return SourceRefused(Reason.BAD_URL, f"{message}.")


# --- Addresses ----------------------------------------------------------------------------------------------


def addresses(url: SourceUrl, allowed_hosts: Collection[str], within: float) -> list[Address]:
    """The addresses that a connection may go to. One forbidden address condemns the host: a name that is public and
    private at once is a trap."""
    is_allowed = is_among(url, allowed_hosts)
    if not is_allowed and not is_usual(url.port):
        raise _forbidden(f"Port {url.port} of {url.host} is not one that videos are fetched from.")
    resolved = _addresses_of(url, within)
    if not is_allowed and not all(is_public(address) and not _is_ours(address) for address in resolved):
        raise _forbidden(f"{url.host} is not a public address; videos are fetched from public addresses only.")
    return resolved


def is_among(url: SourceUrl, hosts: Collection[str]) -> bool:
    """Whether the url is in the list. `host` stands for all usual ports, `host:port` for one port."""
    exempt = [_host_and_port(host) for host in hosts]
    return (url.host, url.port) in exempt or ((url.host, None) in exempt and is_usual(url.port))


def is_usual(port: int) -> bool:
    return port in PORTS.values() or (port >= 1024 and port not in _NOT_FOR_HTTP)


def is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and not _is_plain_ipv6(address):
        return False
    return not any(address in network for network in _FORBIDDEN)


def _is_plain_ipv6(address: IPv6Address) -> bool:
    is_isatap = (int(address) >> 32 & 0xFFFFFFFF) in _ISATAP
    return address in _GLOBAL_UNICAST and not is_isatap and address.scope_id is None


def _is_ours(address: Address) -> bool:
    """Whether this machine itself has the address: a connection from here could reach ports that the firewall closes to
    others. For a route to an own address the kernel chooses the same address as the sender's. No packet is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(probe.getsockname()[0] == str(address))
    except OSError:
        return False  # there is no route; connecting will fail


def _addresses_of(url: SourceUrl, within: float) -> list[Address]:
    try:
        return [ipaddress.ip_address(url.host)]
    except ValueError:
        pass
    answers = _resolve(url, within)
    if isinstance(answers, OSError):
        # some systems report a missing name and an unreachable resolver alike, so both are tried again
        raise unreachable(url.host, f"its name cannot be resolved ({answers.strerror})") from answers
    if not answers:
        raise unreachable(url.host, f"its name was not resolved within {within:.0f} s")
    return list(dict.fromkeys(answers))


def _resolve(url: SourceUrl, within: float) -> list[Address] | OSError:
    """Looks the name up in a thread, because the system's resolver has no timeout."""
    answers: list[list[Address] | OSError] = []

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError as error:
            answers.append(error)
        else:
            answers.append([ipaddress.ip_address(each[4][0]) for each in entries])

    thread = threading.Thread(target=look_up, name="resolve", daemon=True)
    thread.start()
    thread.join(within)
    return answers[0] if answers else []


def unreachable(host: str, why: str) -> SourceUnavailable:
    return SourceUnavailable(Reason.UNREACHABLE, f"{host} cannot be reached: {why}.")


def _forbidden(message: str) -> SourceRefused:
    return SourceRefused(Reason.FORBIDDEN_ADDRESS, message)
