"""Receives one part of a resumable upload: keeps every byte that arrives, checks that it is a video, and checks the
checksum."""

import asyncio
import base64
import hashlib

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from snapapp.api.http.files.upload_parser import BEGINNING, NO_VIDEO, PIECE, looks_like_a_video
from snapapp.process.monolith import Monolith
from snapapp.storage.resumable import Held

SILENT = 20.0  # seconds: a connection that died silently must not keep the upload locked for the next one
DIGESTS = {"sha1": hashlib.sha1, "sha256": hashlib.sha256}
_MISMATCH = 460  # of the tus protocol: the checksum is wrong
COME_BACK = {"Retry-After": "2"}


class Proof:
    """The checksum of one body that the client sent, compared with the bytes that arrive."""

    def __init__(self, said: str) -> None:
        name, _, digest = said.partition(" ")
        if name not in DIGESTS:
            raise HTTPException(400, f"Upload-Checksum is one of {', '.join(DIGESTS)}")
        try:
            self._wanted = base64.b64decode(digest, validate=True)
        except ValueError:  # also for text that is not ASCII
            raise HTTPException(400, "Upload-Checksum is no base64") from None
        self._digest = DIGESTS[name]()

    def update(self, data: bytes) -> None:
        self._digest.update(data)

    @property
    def holds(self) -> bool:
        return self._digest.digest() == self._wanted


async def append(house: Monolith, request: Request, held: Held, proof: Proof | None) -> None:
    if proof:
        await run_in_threadpool(held.doubt)
    await _append_pieces(house, request, held, proof)
    if proof and not proof.holds:
        raise HTTPException(_MISMATCH, "The checksum is another one: what came is not kept")
    if proof:
        await run_in_threadpool(held.trust)


async def _append_pieces(house: Monolith, request: Request, held: Held, proof: Proof | None) -> None:
    """Writes all bytes that arrive, however the connection ends; then raises why it ended too early."""
    stream, gathered = request.stream(), bytearray()
    is_judged = held.state.offset >= BEGINNING
    why: HTTPException | None = None
    while why is None:
        try:
            async with asyncio.timeout(SILENT):
                data = await anext(stream, None)
        except TimeoutError:
            why = HTTPException(408, f"No byte came for {SILENT:.0f} s; what came is kept")
        except ClientDisconnect:
            why = HTTPException(400, "The body ended too early; what came is kept")
        else:
            gathered += data or b""
            if data is None:
                break
            if house.is_leaving:
                why = HTTPException(503, "The server is leaving; what came is kept", COME_BACK)
            elif len(gathered) < PIECE:
                continue
        is_judged = await run_in_threadpool(_write, held, bytes(gathered), is_judged, proof)
        gathered.clear()
    await run_in_threadpool(_write, held, bytes(gathered), is_judged, proof)
    if why:
        raise why


def _write(held: Held, data: bytes, is_judged: bool, proof: Proof | None) -> bool:
    if not data:
        return is_judged
    size = held.append(data)
    if proof:
        proof.update(data)
    if not is_judged and (size >= BEGINNING or held.is_full):
        if not looks_like_a_video(held.beginning(BEGINNING)):
            held.discard()
            raise HTTPException(400, NO_VIDEO)
        return True
    return is_judged
