"""Server-sent events: a page is said to be old when there are newer numbers, and fetches itself."""

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from rqretry.dashboard.request_args import asked
from rqretry.dashboard.sampler import Sampler

MOST_STREAMS = 32
"""Half of the connections that the server takes."""
STREAM_S = 20.0
"""A stream ends after this, before its connection is cut; the browser comes again."""
_AGAIN_MS = 1000


class Streams:
    """The open streams: so many at most, each for a time, so that none outlives its reader long."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self.open = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End them all."""
        self._closing.set()

    async def stream(self, request: Request) -> Response:
        """One event for each sample."""
        asked(request)
        if self.open >= MOST_STREAMS or self._closing.is_set():
            return PlainTextResponse("too many streams; ask again\n", 503)
        return _Stream(self)

    async def ticks(self) -> AsyncIterator[str]:
        """The text of a stream."""
        yield f"retry: {_AGAIN_MS}\n\n"
        end = time.monotonic() + STREAM_S
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while (left := end - time.monotonic()) > 0 and not closing.done():
                tick = asyncio.ensure_future(self._sampler.tick.wait())
                done, _ = await asyncio.wait(
                    (tick, closing), timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if tick in done:
                    yield "data: new\n\n"
                tick.cancel()
        finally:
            closing.cancel()


class _Stream(StreamingResponse):
    """Counted while it is open, however it ends."""

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams.ticks(), media_type="text/event-stream")
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1
