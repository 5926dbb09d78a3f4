"""How much memory the bodies of requests may take together: a body is held until its request is answered, and one that
arrives slowly may be held for half an hour."""

from collections import Counter

from starlette.types import Scope

from snapapp.api.http.requests.access import counted_as, is_here

FREE = 64 * 1024  # bytes of each body that do not count, so that large bodies keep no ordinary request out
MOST = 64 * 1024 * 1024  # bytes
MOST_OF_ONE = 16 * 1024 * 1024  # of one client


class BodyMemory:
    """What is held in one process. Used by the event loop's thread only."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    def share_of(self, scope: Scope) -> "BodyShare":
        # a proxy on this machine forwards requests of others
        return BodyShare(self._held, counted_as(scope), MOST if is_here(scope) else MOST_OF_ONE)


class BodyShare:
    """What the body of one request takes of it."""

    def __init__(self, held: Counter[str], client: str, most: int) -> None:
        self._held = held
        self._client = client
        self._most = most
        self._counted = 0

    def grow_to(self, size: int) -> bool:
        """Whether the body may have this many bytes now."""
        more = max(0, size - FREE) - self._counted
        if more > 0:
            if self._held[self._client] + more > self._most or self._held.total() + more > MOST:
                return False
            self._held[self._client] += more
            self._counted += more
        return True

    def give_back(self) -> None:
        self._held[self._client] -= self._counted
        self._counted = 0
        if self._held[self._client] <= 0:
            del self._held[self._client]
