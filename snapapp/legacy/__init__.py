"""The import from the old service, snap-player-api: its database and its files are brought over; ids and links keep
working.

Read `errors`, `old` (reads the old rows), `shapes` (turns an old row into one of ours), `files` (the media files),
`moving` (the whole import).
"""

from snapapp.legacy.errors import LegacyError
from snapapp.legacy.moving import Moved, move

__all__ = ["LegacyError", "Moved", "move"]
