"""The doctor's check of the disk of SNAPAPP_DATA_DIR, which need not be that of PostgreSQL."""

from snapapp.jobs.doctor.finding import Finding, Severity
from snapapp.storage import Room

NAME = "data_disk"


def finding(room: Room) -> Finding:
    try:
        free = room.free_mb()
    except OSError as error:
        return Finding(
            id="DATA_DISK_HIDDEN",
            severity=Severity.WARNING,
            saw=f"The disk of SNAPAPP_DATA_DIR, {room.folder}, cannot be looked at: {error.strerror}.",
            why="Uploads and snaps are refused, because nobody knows whether there is room.",
            do="Let the service's user enter the folder.",
        )
    numbers = {"freeMb": free, "floorMb": room.floor_mb}
    if free >= room.floor_mb:
        return Finding(id="DATA_DISK", saw=f"{free} MB are free for SNAPAPP_DATA_DIR, {room.folder}.", numbers=numbers)
    return Finding(
        id="DATA_DISK_LOW",
        severity=Severity.CRITICAL,
        saw=f"{free} MB are free for SNAPAPP_DATA_DIR, {room.folder}, less than the floor of {room.floor_mb} MB.",
        why="Uploads and snaps are refused. On a full disk, jobs that make pictures wait until there is room.",
        do="Make room: old backups, logs, media. What waits goes on by itself within a minute.",
        paste=f"du -xh --max-depth=2 {room.folder} | sort -h | tail",
        numbers=numbers,
    )
