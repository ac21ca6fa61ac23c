"""A client that does not come to an end: half a head, half a body."""

import asyncio
import re
from contextlib import suppress

import httpx
import pytest

from rqretry.dashboard import http_server
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.serving import half, serving

HALVES = {
    "nothing": b"",
    "head": b"GET / HTTP/1.1\r\nHost: localhost\r\nX-",
    "body": b"POST /act/pause/billing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\na=",
}


async def gone(reader: asyncio.StreamReader) -> bytes:
    """What came until the server cut the connection."""
    with suppress(ConnectionResetError):
        return await reader.read()
    return b""


@pytest.mark.parametrize("text", HALVES.values(), ids=HALVES)
async def test_half_sent_requests_do_not_hold_the_dashboard(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.3)
    async with serving(bench.url) as (port, _), asyncio.timeout(20):
        held = [await half(port, text) for _ in range(70)]
        assert not any([b"200 OK" in await gone(reader) for reader, _ in held])
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
            assert (await browser.get("/")).status_code == 200
        for _, writer in held:
            writer.close()


async def test_bytes_that_keep_coming_win_no_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S", 0.3)
    async with serving(bench.url) as (port, _), asyncio.timeout(20):
        reader, writer = await half(port, HALVES["head"])
        answer = asyncio.create_task(gone(reader))
        while not answer.done():
            writer.write(b"a")
            await asyncio.wait([answer], timeout=0.02)
        assert answer.result() == b""
        writer.close()


async def test_a_request_in_pieces_is_answered_and_the_next_one_too(bench: Bench) -> None:
    async with serving(bench.url) as (port, _), asyncio.timeout(20):
        reader, writer = await half(port, HALVES["head"])
        for _ in range(2):
            writer.write(b"a: b\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
            writer.write(HALVES["head"])
        writer.close()
