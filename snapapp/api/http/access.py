"""Who may ask at all: from which addresses /internal answers, and how many wrong tokens an address may try."""

import ipaddress
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic

from starlette.types import Scope

WRONG_A_MINUTE = 30  # tokens, of one address; then it waits for the minute to pass
_WINDOW = 60.0  # seconds
_MOST_ADDRESSES = 10_000  # remembered in a minute, so that nobody fills the memory by asking from everywhere

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Access:
    """Of one process; only the event loop's thread asks it."""

    def __init__(self, allowed: Sequence[str], *, clock: Callable[[], float] = monotonic) -> None:
        self._allowed = [ipaddress.ip_network(each, strict=False) for each in allowed]
        self._clock = clock
        self._began = clock()
        self._wrong: Counter[str] = Counter()

    def may_ask(self, scope: Scope) -> bool:
        """This machine always; others where no address is named, or theirs is."""
        address = address_of(scope)
        return not self._allowed or is_here(scope) or any(address in each for each in self._allowed if address)

    def wait_for(self, scope: Scope) -> int:
        """So many seconds, after too many wrong tokens; 0: it may go on. This machine never waits: a proxy on it says
        for whom it asks."""
        self._pass()
        if self._wrong[_neighbourhood(scope)] < WRONG_A_MINUTE:
            return 0
        return max(1, round(self._began + _WINDOW - self._clock()))

    def was_wrong(self, scope: Scope) -> None:
        self._pass()
        whose = _neighbourhood(scope)
        if not is_here(scope) and (whose in self._wrong or len(self._wrong) < _MOST_ADDRESSES):
            self._wrong[whose] += 1

    def _pass(self) -> None:
        if self._clock() - self._began >= _WINDOW:
            self._began = self._clock()
            self._wrong.clear()


def address_of(scope: Scope) -> Address | None:
    """The other end of the connection, or who a proxy on this machine says it is; a Unix socket has none."""
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


def _neighbourhood(scope: Scope) -> str:
    """Whoever has one address of IPv6 has 2^64 of them."""
    address = address_of(scope)
    if address is None or address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))
