"""Backups of the database and the media, their restoring, and the drill that proves that they can be restored.

Read in this order: `place` (where backups are stored, and in which form), `manifest` (the description of a backup),
`streams` (reading and writing through programs and encryption), `reading` (the role that may read every row), `making`,
`retention`, `temporary` (the folders that the next two work in), `restoring`, `drill`; then `records`, `judgement` and
`check` (whether a person should act)."""

from snapapp.backup.drill import drill
from snapapp.backup.making import make
from snapapp.backup.place import place_of
from snapapp.backup.restoring import restore

__all__ = ["drill", "make", "place_of", "restore"]
