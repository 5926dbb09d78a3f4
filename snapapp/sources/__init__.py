"""Remote videos as seekable binary files: guarded, fetched in ranges, cached on local disk.

    with open_remote(url, Limits.of(settings)) as file:
        ...

To read: `remote` (the file), `cache` (its blocks on disk), `http_client` (requests and what their answers mean),
`connection` (waiting with a limit), `guard` (where we go), `limits`, `errors`. `post` sends, under the same guard.
"""

from snapapp.sources.errors import Reason, SourceError, SourceRefused, SourceUnavailable
from snapapp.sources.limits import Limits
from snapapp.sources.post import post
from snapapp.sources.remote import RemoteFile, beginning, open_remote

__all__ = [
    "Limits",
    "Reason",
    "RemoteFile",
    "SourceError",
    "SourceRefused",
    "SourceUnavailable",
    "beginning",
    "open_remote",
    "post",
]
