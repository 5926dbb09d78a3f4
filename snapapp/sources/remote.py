"""A remote video as a file. Reads fetch blocks, and blocks ahead: the more, the longer the video was read in
sequence."""

import io
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from snapapp.sources import guard
from snapapp.sources.cache import BLOCK, Blocks, Cache
from snapapp.sources.errors import Dropped, Reason, SourceUnavailable
from snapapp.sources.http_client import Answer, SourceConnection, Version
from snapapp.sources.limits import Limits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_IN_MEMORY = 16  # blocks
_RUNS = 8  # sequences that are read in turn: a container's index, its pictures, its sound
_MOST_AHEAD = 64  # blocks
_TRIES = 3  # of a request whose connections break without bringing a byte
_ROOM_EVERY = 64  # blocks written


def open_remote(url: str, limits: Limits) -> "RemoteFile":
    """Opens the video at a URL; raises `SourceRefused` or `SourceUnavailable`. This takes one request, or two if the
    video is cached and has changed. From a server without ranges the whole video is fetched here."""
    connection = SourceConnection(guard.source_url(url), limits)
    try:
        with connection.pace.running():
            return _open(connection, Cache(limits))
    except BaseException:
        connection.hang_up()
        raise


def _open(connection: SourceConnection, cache: Cache) -> "RemoteFile":
    answer = connection.ask(0, 1 if cache.has_begun(connection.origin) else BLOCK)
    if answer.is_partial and (not answer.is_as_asked or answer.version.size is None):
        answer = connection.ask(0, None)  # this server cannot send parts
    connection.judge(answer.version.size)
    file = RemoteFile(connection, cache, cache.blocks(connection.origin, answer.version), answer.version)
    try:
        file.begin(answer)
    except BaseException:
        file.close()
        raise
    return file


def beginning(url: str, limits: Limits, size: int) -> bytes:
    """The first `size` bytes at a URL, or all if there are fewer. Nothing is cached, and no more is fetched, even from
    a server without ranges."""
    connection = SourceConnection(guard.source_url(url), limits)
    try:
        with connection.pace.running():
            answer = connection.ask(0, size)
            if answer.is_partial and not answer.is_as_asked:
                answer = connection.ask(0, None)  # this server cannot send parts
            first_bytes = _read_first(answer, size)
            connection.judge(len(first_bytes))
            return first_bytes
    finally:
        connection.hang_up()


def _read_first(answer: Answer, size: int) -> bytes:
    collected = b""
    for piece in answer.pieces():
        collected += piece
        if len(collected) >= size:
            break
    return collected[:size]


class RemoteFile(io.RawIOBase):
    """A seekable file for one reader on one thread. A read returns all bytes that were asked for, up to the end of the
    file; a read that raises does not move the position. Every read may raise `SourceRefused` or `SourceUnavailable`."""

    def __init__(self, connection: SourceConnection, cache: Cache, blocks: Blocks, version: Version) -> None:
        super().__init__()
        self._connection = connection
        self._cache = cache
        self._blocks = blocks
        self._version = version
        self._position = 0
        self._recent: OrderedDict[int, bytes] = OrderedDict()
        # the block at which each sequence would go on -> its length so far
        self._runs: OrderedDict[int, int] = OrderedDict()
        self._written = 0

    @property
    def size(self) -> int:
        assert self._version.size is not None
        return self._version.size

    @property
    def etag(self) -> str | None:
        return self._version.etag

    @property
    def last_modified(self) -> str | None:
        return self._version.last_modified

    # --- the file -------------------------------------------------------------------------------------------

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence is {whence}")
        position = offset + (0, self._position, self.size)[whence]
        if position < 0:
            raise ValueError(f"there is nothing at {position}")
        self._position = position
        return position

    def read(self, size: int | None = -1, /) -> bytes:
        self._check_open()
        end = self.size if size is None or size < 0 else min(self._position + size, self.size)
        content = b"".join(self._pieces(self._position, end))
        self._position += len(content)
        return content

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self._check_open()
        view = memoryview(buffer).cast("B")
        count = 0
        for piece in self._pieces(self._position, min(self._position + len(view), self.size)):
            view[count : count + len(piece)] = piece
            count += len(piece)
        self._position += count
        return count

    def close(self) -> None:
        """Closes the file. Calling it twice does no harm."""
        if not self.closed:
            self._connection.hang_up()
            self._blocks.close()
            self._recent.clear()
            if self._written:
                self._cache.make_room()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the remote video is closed")

    # --- its blocks -----------------------------------------------------------------------------------------

    def _pieces(self, position: int, end: int) -> Iterator[bytes]:
        while position < end:
            index, skipped = divmod(position, BLOCK)
            yield self._block(index, -(-end // BLOCK))[skipped : skipped + end - position]
            position = (index + 1) * BLOCK

    @property
    def _count(self) -> int:
        return -(-self.size // BLOCK)

    def _length(self, index: int) -> int:
        return min(BLOCK, self.size - index * BLOCK)

    def _block(self, index: int, needed: int) -> bytes:
        """The block with this index. The blocks up to `needed` will be read next."""
        block = self._recent.pop(index, None) or self._blocks.get(index, self._length(index))
        if block is None:
            block = self._fetch_block(index, needed)
        self._recent[index] = block
        if len(self._recent) > _IN_MEMORY:
            self._recent.popitem(last=False)
        return block

    def _fetch_block(self, index: int, needed: int) -> bytes:
        with self._connection.pace.running(), self._blocks.turn(self._connection.pace.left / 2):
            block = self._blocks.get(index, self._length(index))
            if block is None:
                self._fetch(index, self._until(index, needed))
                block = self._blocks.get(index, self._length(index))
        if block is None:
            raise SourceUnavailable(Reason.NO_ROOM, "Our disk does not keep what is written to it.")
        return block

    def _until(self, index: int, needed: int) -> int:
        """Where a fetch that begins at this block ends, at the latest before the next block that is on disk."""
        wanted = max(min(needed - index, _MOST_AHEAD), ahead(self._runs.get(index, 0)))
        until = min(index + wanted, self._count)
        return next((each for each in range(index + 1, until) if self._blocks.has(each)), until)

    def _fetch(self, index: int, until: int) -> None:
        run = self._runs.pop(index, 0)
        self._request(index, until)
        self._runs[until] = run + until - index
        if len(self._runs) > _RUNS:
            self._runs.popitem(last=False)

    def _request(self, index: int, until: int) -> None:
        """Fetches blocks. After a broken connection it goes on where that ended, as long as some try brings bytes."""
        end = min(until * BLOCK, self.size)
        intake = _Intake(index * BLOCK, end)
        fruitless = 0
        while not intake.is_done:
            before = intake.position
            try:
                answer = self._connection.ask(intake.position, end, self._version)
                if not answer.is_partial:
                    self._take_whole(answer)
                    break
                self._take(self._same_version(answer), intake)
            except Dropped:
                fruitless = 0 if intake.position > before else fruitless + 1
                if fruitless >= _TRIES:
                    raise

    def _same_version(self, answer: Answer) -> Answer:
        if not self._version.is_still(answer.version):
            raise self._connection.changed()
        if not answer.is_as_asked:
            raise self._connection.dropped("it sent another part than was asked for")
        return answer

    def _take(self, answer: Answer, intake: "_Intake") -> None:
        for piece in answer.pieces():
            for index, block in intake.add(piece):
                self._put(index, block)

    def _put(self, index: int, block: bytes) -> None:
        self._blocks.put(index, block)
        self._written += 1
        if self._written % _ROOM_EVERY == 0:
            self._cache.make_room()

    # --- whole, from servers without ranges -----------------------------------------------------------------

    def begin(self, answer: Answer) -> None:
        """Stores the bytes of the first answer: the first block, one byte of a block that is cached, or everything. If
        another process is fetching everything, its blocks are used."""
        if answer.is_partial:
            with suppress(Dropped):  # the next read fetches it again
                self._take(answer, _Intake(0, self._length(0)))
            self._runs[1] = 1
        elif not self._is_complete():
            with self._blocks.turn(self._connection.pace.left / 2) as has_waited:
                if not has_waited:
                    self._take_whole(answer)
                elif not self._is_complete():
                    self._take_whole(self._connection.ask(0, None))
        self._connection.let_go()

    def _is_complete(self) -> bool:
        return self._version.size is not None and all(self._blocks.has(index) for index in range(self._count))

    def _take_whole(self, answer: Answer) -> None:
        if not self._version.is_still(answer.version):
            raise self._connection.changed()
        self._connection.afford(answer.length)
        intake = _Intake(0, answer.length)
        self._take(answer, intake)
        if self._version.size is None:
            self._version = replace(self._version, size=intake.position)
            for index, block in intake.rest():
                self._put(index, block)
        self._connection.judge(self.size)


class _Intake:
    """Collects pieces of any size into blocks."""

    def __init__(self, position: int, end: int | None) -> None:
        self.position = position
        self.end = end  # None: unknown
        self._index = position // BLOCK
        self._open = bytearray()

    @property
    def is_done(self) -> bool:
        return self.position == self.end

    def add(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        self._open += piece
        self.position += len(piece)
        while len(self._open) >= BLOCK:
            yield self._cut()
        if self.is_done:
            yield from self.rest()

    def rest(self) -> Iterator[tuple[int, bytes]]:
        if self._open:
            yield self._cut()

    def _cut(self) -> tuple[int, bytes]:
        block = bytes(self._open[:BLOCK])
        del self._open[:BLOCK]
        self._index += 1
        return self._index - 1, block


def ahead(run: int) -> int:
    """How many blocks to fetch at once after `run` blocks were fetched in sequence: as many again up to 2 MiB, so that
    a short read wastes at most its own size; then a quarter of the run up to 16 MiB."""
    return max(1, min(run, 8), min(run // 4, _MOST_AHEAD))
