"""Backups of the database and the media, how they are brought back, and the drill that proves they can be.

To be read in this order: `place` (where they lie, in which shape), `manifest` (what one says of itself), `streams`
(from programs, through the seal), `reading` (who may read every row), `making`, `retention`, `restoring`, `drill`; then
`records`, `judgement` and `check`: whether somebody should look."""

from snapapp.backup.drill import drill
from snapapp.backup.making import make
from snapapp.backup.place import place_of
from snapapp.backup.restoring import restore

__all__ = ["drill", "make", "place_of", "restore"]
