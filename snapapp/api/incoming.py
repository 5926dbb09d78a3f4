"""The bytes of an uploaded file as they arrive, out of a raw body or a form: nothing is kept that was not asked for."""

import re
from collections.abc import AsyncIterator
from email.message import Message
from urllib.parse import unquote

from fastapi import HTTPException, Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser

PIECE = 256 * 1024  # bytes handed on at once: each costs a thread's turn
_FIELDS_MAX = 20
_FIELD_MAX = 4096  # bytes of a form's other fields, and of a part's headers
_NAME_MAX = 255  # characters


class Incoming:
    """`name` is known when the first piece is there, `fields` when the last one is."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.name: str | None = file_name(unquote(request.headers.get("X-File-Name", "")))
        self.fields: dict[str, str] = {}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file, in pieces of at least PIECE bytes but for the last."""
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
        given = Message()
        given["content-type"] = self._request.headers.get("Content-Type", "")
        if given.get_content_type() != "multipart/form-data":
            return self._request.stream()
        boundary = given.get_param("boundary")
        if not isinstance(boundary, str) or not 1 <= len(boundary) <= 256 or not boundary.isascii():
            raise HTTPException(400, "Malformed form: it names no boundary")
        return self._of_form(_Form(boundary.encode(), self.fields))

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
    """What the parser calls, as it goes through a body: the one file, and the short fields beside it."""

    def __init__(self, boundary: bytes, fields: dict[str, str]) -> None:
        self.name: str | None = None  # of the file, as the client says it; None: it has not come yet
        self.is_over = False
        self._fields = fields
        self._data: list[bytes] = []
        self._header = bytearray()
        self._value = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._headers_size = 0
        self._field: str | None = None  # None: the part at hand is the file
        self.parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._on_header,
                "on_header_value": self._on_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers,
                "on_part_data": self._on_data,
                "on_part_end": self._on_end,
                "on_end": self._finish,
            },
        )

    def take(self) -> list[bytes]:
        taken, self._data = self._data, []
        return taken

    def _begin(self) -> None:
        self._headers, self._headers_size = {}, 0
        self._value = bytearray()

    def _on_header(self, data: bytes, start: int, end: int) -> None:
        self._header += self._bounded(data[start:end])

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._bounded(data[start:end])

    def _bounded(self, data: bytes) -> bytes:
        self._headers_size += len(data)
        if self._headers_size > _FIELD_MAX:
            raise HTTPException(400, "Malformed form: a part has too many headers")
        return data

    def _on_header_end(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _on_headers(self) -> None:
        told = Message()
        told["content-disposition"] = self._headers.get(b"content-disposition", b"").decode("utf-8", "replace")
        parameters = dict(told.get_params(failobj=[], header="content-disposition"))
        is_file = "filename" in parameters or "filename*" in parameters
        if not is_file:
            self._field = str(parameters.get("name", ""))[:100]
            if len(self._fields) >= _FIELDS_MAX:
                raise HTTPException(400, "Malformed form: it has too many fields")
        elif self.name is not None:
            raise HTTPException(400, "Send one file at a time")
        else:
            self._field = None
            self.name = told.get_filename() or ""

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is None:
            self._data.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > _FIELD_MAX:
            raise HTTPException(400, f"Malformed form: the field {self._field[:60]} is too long")

    def _on_end(self) -> None:
        if self._field is not None:
            self._fields[self._field] = bytes(self._value).decode("utf-8", "replace")

    def _finish(self) -> None:
        self.is_over = True


def file_name(given: str) -> str | None:
    """The last part of what a client calls its file, for people to read: never a path, never part of a key."""
    last = re.split(r"[/\\]", given)[-1]
    printable = "".join(letter for letter in last if letter.isprintable()).strip(" .")
    return printable[:_NAME_MAX].encode("utf-8", "ignore").decode() or None


# --- what it is -------------------------------------------------------------------------------------------------

_ATOMS = {b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot"}  # a mov or mp4 begins with one of them
_EBML = b"\x1a\x45\xdf\xa3"  # mkv and webm


def looks_like_a_video(beginning: bytes) -> bool:
    """By its first bytes, not by what the client says. Whether it can be used is for the probe to find out."""
    return beginning[4:8] in _ATOMS or beginning.startswith(_EBML)
