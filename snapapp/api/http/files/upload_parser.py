"""Reads an uploaded file as it arrives, from a raw body or a form. Only the file is kept."""

import re
from collections.abc import AsyncIterator
from urllib.parse import unquote

from fastapi import HTTPException, Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MAX_BOUNDARY_LENGTH, MultipartParser, parse_options_header

from snapapp.api.http.header_text import as_sent

PIECE = 256 * 1024  # bytes handed on at once: each piece is written by a call in a thread
_FIELDS_MAX = 20  # of a form beside its file: each may take 10 ms of the event loop
_FIELD_MAX = 4096  # bytes of a form's other fields
_NAME_MAX = 255  # characters
_JOINERS = "\u200c\u200d"  # unseen, but Persian words and emoji of several parts are others without them


class Incoming:
    """An upload that is being received. `name` is set when the first piece comes."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.name: str | None = file_name(unquote(as_sent(request.headers.get("X-File-Name", ""))))

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file in pieces, each of at least PIECE bytes but for the last."""
        gathered: list[bytes] = []
        size = 0
        async for data in self._data():
            gathered.append(data)
            size += len(data)
            if size >= PIECE:
                yield b"".join(gathered)
                gathered, size = [], 0
        if gathered:
            yield b"".join(gathered)

    def _data(self) -> AsyncIterator[bytes]:
        kind, parameters = parse_options_header(self._request.headers.get("Content-Type"))
        if kind != b"multipart/form-data":
            return self._request.stream()
        boundary = parameters.get(b"boundary", b"")
        if not 1 <= len(boundary) <= MAX_BOUNDARY_LENGTH:
            raise HTTPException(400, "Malformed form: it names no boundary")
        return self._of_form(_Form(boundary))

    async def _of_form(self, form: "_Form") -> AsyncIterator[bytes]:
        try:
            async for chunk in self._request.stream():
                form.parser.write(chunk)
                if form.name is not None:
                    self.name = self.name or file_name(form.name)
                for data in form.take():
                    yield data
            form.parser.finalize()
        except FormParserError:
            raise HTTPException(400, "Malformed form: it cannot be read as multipart/form-data") from None
        if not form.is_over or form.name is None:
            raise HTTPException(400, "The form holds no file" if form.is_over else "The form ends too early")


class _Form:
    """The parser's callbacks, which collect the file of a form. A few short fields may stand beside it."""

    def __init__(self, boundary: bytes) -> None:
        self.name: str | None = None  # the file's name as the client gave it; None until its part has come
        self.is_over = False
        self._parts = 0
        self._data: list[bytes] = []
        self._header = bytearray()
        self._value = bytearray()
        self._field_size = 0
        self._disposition = b""  # the part's Content-Disposition
        self._field: str | None = None  # the name of the present part; None if it is the file
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_header,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_end": self._finish,
            },
        )

    def take(self) -> list[bytes]:
        data, self._data = self._data, []
        return data

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > _FIELDS_MAX + 1:
            raise HTTPException(400, "Malformed form: it has too many fields")
        self._disposition, self._field_size = b"", 0

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]  # bounded: the parser allows 8 headers a part, each of 4 kB

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _on_headers(self) -> None:
        _, parameters = parse_options_header(self._disposition)
        name = parameters.get(b"filename")  # not filename*, which RFC 7578 forbids and whose decoding can fail
        if name is None:
            self._field = parameters.get(b"name", b"").decode("utf-8", "replace")[:100]
        elif self.name is not None:
            raise HTTPException(400, "Send one file at a time")
        else:
            self._field = None
            self.name = name.decode("utf-8", "replace")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._data.append(data[start:end])
            return
        self._field_size += end - start
        if self._field_size > _FIELD_MAX:
            raise HTTPException(400, f"Malformed form: {self._field[:60]} has no filename, and is too long for a field")

    def _finish(self) -> None:
        self.is_over = True


def file_name(given: str) -> str | None:
    """A file's name as the client gave it, without a path, for people to read. It never becomes part of a key."""
    base_name = re.split(r"[/\\]", given)[-1]
    printable = "".join(letter for letter in base_name if letter.isprintable() or letter in _JOINERS)
    printable = printable.strip(f" .{_JOINERS}")
    return printable[:_NAME_MAX].encode("utf-8", "ignore").decode() or None


# --- what it is -------------------------------------------------------------------------------------------------

_ATOMS = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"}  # a mov or mp4 begins with one of these
_EBML, _FLV = b"\x1a\x45\xdf\xa3", b"FLV\x01"  # EBML begins mkv and webm
NO_VIDEO = "The file is no video that can be used: send mp4, mov, mkv, webm, ts, flv or avi"
BEGINNING = 400  # bytes that `looks_like_a_video` needs: two packets of an MPEG-TS


def looks_like_a_video(beginning: bytes) -> bool:
    """Whether the first bytes are those of a video, whatever the client says. Whether the video can be used, the probe
    finds out."""
    if beginning.startswith(b"RIFF"):
        return beginning[8:12] == b"AVI "
    if beginning[0:189:188] == b"GG" or beginning[4:197:192] == b"GG":  # each packet of an MPEG-TS begins with G
        return True
    return beginning[4:8] in _ATOMS or beginning.startswith((_EBML, _FLV))
