"""Bookmarks: the place in each head (queue, kind, priority) before which no job waits. A claim begins there, because
before it are the index entries of the jobs that ran, and vacuum cannot remove them while some transaction holds an old
snapshot.

A job may come to wait before a bookmark all the same: one that is handed back or recovered, or whose INSERT commits
late. So once in a while somebody looks there: the claim itself while that costs little, and else a statement of its own
on another connection, so that no job waits for it (with 300,000 dead entries it took a third of a second).
"""

from collections import deque
from collections.abc import Collection
from datetime import timedelta
from time import monotonic

from snapapp.jobs.rows import claim
from snapapp.jobs.rows.claim import Bookmark, Claimed, Head, Look
from snapapp.jobs.rows.database import Db

_KEPT = 32  # heads at most: those that jobs came from last
_LATE_COMMIT = timedelta(seconds=2)  # a job may become visible this long after it is due, when its INSERT commits late
_LOOK_BACK_EVERY = 1.0  # seconds …
_SHARE = 0.05  # … or rarer, so that it takes at most this part of the time
_TAKES_LONG = 0.01  # seconds; where looking back takes longer, it is left to `look_back`


class Bookmarks:
    """A claim calls `for_claim` and then `after_claim`; other threads call `look_back` and `look_back_soon`."""

    def __init__(self) -> None:
        self._marks: dict[Head, Bookmark] = {}  # the head that jobs came from last is the last
        self._lately: set[Head] = set()  # heads marked since a claim looked back
        # True: looking back is left to `look_back`, which then writes this and _due_at instead of the claim
        self._takes_long = False
        self._due_at = 0.0  # when to look back again, monotonic
        self._claim_looks_back = False  # does the claim under way look before the bookmarks?
        self._found: deque[tuple[Head, Bookmark | None]] = deque()  # from `look_back` to the next claim

    def for_claim(self, begin: Head, end: Head) -> dict[Head, Bookmark]:
        """The bookmarks for a claim that looks at the heads between these two; none, where it is time to look back."""
        while self._found:
            self._move_back(*self._found.popleft())
        self._claim_looks_back = not self._takes_long and monotonic() >= self._due_at
        if self._claim_looks_back:
            self._lately.clear()
        # each costs a claim some time, so those of heads without new jobs only where they save more
        heads = self._marks if self._takes_long else self._lately
        return {head: self._marks[head] for head in heads if begin < head < end}

    def after_claim(self, look: Look, kinds: Collection[str], claimed: Claimed, took: float) -> None:
        """Learns from the answer to a claim of these kinds, which took so many seconds."""
        late = Bookmark(claimed.at - _LATE_COMMIT, 0)
        for head, mark in claimed.last.items():
            self._marks.pop(head, None)
            self._marks[head] = min(mark, late)
            self._lately.add(head)
        for head in look.bookmarks:
            if head.kind in kinds and head not in claimed.due:
                self._marks[head] = late
        while len(self._marks) > _KEPT:
            self._remove(next(iter(self._marks)))
        if self._claim_looks_back:
            self._rest(took)

    def look_back_soon(self) -> None:
        """Jobs were recovered, and may be due before their bookmarks."""
        self._due_at = 0.0

    @property
    def wants_look_back(self) -> bool:
        return self._takes_long and monotonic() >= self._due_at

    def look_back(self, db: Db) -> bool:
        """True: jobs wait before bookmarks, and the next claim will find them."""
        self._due_at = float("inf")
        began = monotonic()
        try:
            found = claim.first_before(db, self._marks.copy())
        except Exception:
            self._due_at = monotonic() + _LOOK_BACK_EVERY
            raise
        self._found.extend(found.items())
        self._rest(monotonic() - began)
        return bool(found)

    def _rest(self, took: float) -> None:
        self._due_at = monotonic() + max(_LOOK_BACK_EVERY, took / _SHARE)
        self._takes_long = took > _TAKES_LONG and bool(self._marks)  # without any, there is nowhere to look back

    def _move_back(self, head: Head, mark: Bookmark | None) -> None:
        if mark is None:
            self._remove(head)
        elif head in self._marks:
            self._marks[head] = min(mark, self._marks[head])

    def _remove(self, head: Head) -> None:
        self._marks.pop(head, None)
        self._lately.discard(head)
