"""Opens remote videos as seekable binary files, which are fetched in ranges from guarded addresses and cached on disk.

    with open_remote(url, Limits.of(settings)) as file:
        ...

Read `remote` (the file), `cache` (its blocks on disk), `http_client` (requests and their answers), `connection`
(connections with time limits), `guard` (which addresses are allowed), `limits`, `errors`. `post` sends a message under
the same guard.
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
