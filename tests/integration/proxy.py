"""A proxy before a server's unix socket that loses requests and replies when told to."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rqretry.embedded import EmbeddedRedis


class Proxy:
    """Passes bytes on; `drop_replies` and `swallow` break what is on the line."""

    def __init__(self, server: EmbeddedRedis, path: Path) -> None:
        self._server = server
        self._path = path
        self.drop_replies = 0
        """How many times to pass a request with this word on and lose the reply; see `word`."""
        self.word = b"EVALSHA"
        self.swallow = False
        """Requests with the word go nowhere, and their connection is closed."""
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"unix://{self._path}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        inside, outside = await asyncio.open_unix_connection(str(self._server.socket_path))
        self._lines |= {writer, outside}
        lost = asyncio.Event()
        back = asyncio.ensure_future(self._replies(inside, writer, lost))
        self._tasks.add(back)
        while data := await reader.read(1 << 20):
            if self.word in data and self.swallow:
                break
            if self.word in data and self.drop_replies > 0:
                self.drop_replies -= 1
                lost.set()
            outside.write(data)
        outside.close()

    async def _replies(
        self, inside: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event
    ) -> None:
        while (data := await inside.read(1 << 20)) and not lost.is_set():
            writer.write(data)
        writer.close()

    def cut(self) -> None:
        """Close every connection."""
        for line in self._lines:
            line.close()
        self._lines.clear()


@asynccontextmanager
async def proxied(server: EmbeddedRedis) -> AsyncIterator[Proxy]:
    """A proxy before this server."""
    with tempfile.TemporaryDirectory(prefix="rqretry-") as directory:
        proxy = Proxy(server, Path(directory) / "proxy.sock")
        listener = await asyncio.start_unix_server(
            proxy.handle, str(Path(directory) / "proxy.sock")
        )
        try:
            yield proxy
        finally:
            listener.close()
            proxy.cut()
            for task in proxy._tasks:
                task.cancel()
            await asyncio.gather(*proxy._tasks, return_exceptions=True)
            await listener.wait_closed()
