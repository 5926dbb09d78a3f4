"""Streamed answers that are cut when their client reads too slowly."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping

from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

_log = logging.getLogger(__name__)


class TimelyResponse(StreamingResponse):
    """A streamed answer, named `what` in the log, that is cut when its client does not take a block within
    `send_within` seconds."""

    def __init__(
        self,
        blocks: AsyncIterator[bytes] | Iterator[bytes],
        headers: Mapping[str, str],
        *,
        what: str,
        send_within: float,
        status: int = 200,
    ) -> None:
        super().__init__(blocks, status, headers)
        self._what = what
        self._send_within = send_within

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(self._send_within):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            _log.info("%s was cut: its client took nothing for %g s.", self._what, self._send_within)
