"""Receives one part of a resumable upload: keeps every byte that arrives, and checks that it is a video."""

import asyncio

from fastapi import HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from snapapp.api.http.files.upload_parser import BEGINNING, NO_VIDEO, PIECE, looks_like_a_video
from snapapp.process.monolith import Monolith
from snapapp.storage.resumable import Held

SILENT = 20.0  # seconds: a connection that died silently must not keep the upload locked for the next one
COME_BACK_SOON = {"Retry-After": "2"}


async def append(monolith: Monolith, request: Request, held: Held) -> None:
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
            if monolith.is_leaving:
                why = HTTPException(503, "The server is leaving; what came is kept", COME_BACK_SOON)
            elif len(gathered) < PIECE:
                continue
        is_judged = await run_in_threadpool(_write, held, bytes(gathered), is_judged)
        gathered.clear()
    await run_in_threadpool(_write, held, bytes(gathered), is_judged)
    if why:
        raise why


def _write(held: Held, data: bytes, is_judged: bool) -> bool:
    if not data:
        return is_judged
    size = held.append(data)
    if not is_judged and (size >= BEGINNING or held.state.is_whole):
        if not looks_like_a_video(held.beginning(BEGINNING)):
            held.discard()
            raise HTTPException(400, NO_VIDEO)
        return True
    return is_judged
