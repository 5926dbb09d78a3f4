"""Where a request comes from: the addresses to which /internal answers, how many wrong tokens an address may try, and
what counts as this machine."""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from time import monotonic

from starlette.types import Scope

from snapapp.api.http.requests.scopes import headers_of

WRONG_A_MINUTE = 30  # different wrong tokens of one address; then it must wait until the minute is over
_WINDOW = 60.0  # seconds
_MOST_ADDRESSES = 10_000  # remembered in a minute, so that requests from many addresses cannot fill the memory
_LOCAL_NAMES = {"localhost", "127.0.0.1", "::1"}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Access:
    """The limits in one process. Used by the event loop's thread only."""

    def __init__(self, allowed: Sequence[str], *, clock: Callable[[], float] = monotonic) -> None:
        self._allowed = [ipaddress.ip_network(each, strict=False) for each in allowed]
        self._clock = clock
        self._began = clock()
        self._wrong: defaultdict[str, set[object]] = defaultdict(set)

    def may_ask(self, scope: Scope) -> bool:
        """Whether the client's address may use /internal: this machine always, others if no addresses are set or theirs
        is among them."""
        address = address_of(scope)
        is_ours = is_here(scope) and not _is_of_a_proxy(scope)
        return not self._allowed or is_ours or any(address in each for each in self._allowed if address)

    def wait_for(self, scope: Scope) -> int:
        """How many seconds the client must wait after too many wrong tokens; 0 if it need not. This machine never
        waits, because a proxy on it forwards requests of others."""
        self._start_new_minute()
        if len(self._wrong.get(counted_as(scope), ())) < WRONG_A_MINUTE:
            return 0
        return max(1, round(self._began + _WINDOW - self._clock()))

    def was_wrong(self, scope: Scope, token: bytes | None) -> None:
        """Counts a wrong token; None is one that is not known, and so differs from all others. The same one again is no
        guess: a device whose token was replaced sends it for days, and others at its address must not wait for that."""
        if self.wait_for(scope) or is_here(scope):  # further tokens of one who must wait would only fill the memory
            return
        client = counted_as(scope)
        if client in self._wrong or len(self._wrong) < _MOST_ADDRESSES:
            self._wrong[client].add(object() if token is None else hash(token))

    def _start_new_minute(self) -> None:
        if self._clock() - self._began >= _WINDOW:
            self._began = self._clock()
            self._wrong.clear()


def address_of(scope: Scope) -> Address | None:
    """The client's address, as the connection or a proxy on this machine gives it; None for a Unix socket."""
    try:
        address = ipaddress.ip_address((scope.get("client") or ("",))[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def is_here(scope: Scope) -> bool:
    if not scope.get("client"):
        return True
    address = address_of(scope)
    return address is not None and address.is_loopback


def counted_as(scope: Scope) -> str:
    """The key by which a client is counted: an IPv4 address, or an IPv6 network of 64 bits, because one client has all
    of its 2^64 addresses."""
    address = address_of(scope)
    if address is None or address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def is_of_this_machine(scope: Scope) -> bool:
    return is_here(scope) and not _is_of_a_proxy(scope) and _is_meant_for_here(headers_of(scope))


def _is_of_a_proxy(scope: Scope) -> bool:
    """Whether a proxy asks for somebody else through a Unix socket: unless uvicorn is told to (--forwarded-allow-ips),
    it does not take the address from the header there, as it does on 127.0.0.1."""
    return not scope.get("client") and not headers_of(scope).keys().isdisjoint((b"forwarded", b"x-forwarded-for"))


def _is_meant_for_here(headers: dict[bytes, bytes]) -> bool:
    """Whether the request is meant for localhost. A page of another site can reach localhost too, by a host name of its
    own or across sites."""
    host = headers.get(b"host", b"localhost").lower()
    name = re.sub(r":\d+$", "", host.decode("latin-1")).strip("[]")
    crossed = headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")
    origin = headers.get(b"origin", host).lower().rpartition(b"://")[2]  # for browsers that send no Sec-Fetch-Site
    return name in _LOCAL_NAMES and not crossed and origin == host
