"""Moving in: what the old service, snap-player-api, kept in its database is brought over; ids and links keep working.

Read `errors`, `old` (its rows, and nothing but reading), `shapes` (a row of its as one of ours), `files` (what lies
beside the rows), `moving` (all of it together).
"""

from snapapp.legacy.errors import LegacyError
from snapapp.legacy.moving import Moved, move

__all__ = ["LegacyError", "Moved", "move"]
