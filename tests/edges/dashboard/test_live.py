"""The streams that say when there are newer numbers: so many at most, and none is left behind."""

import asyncio
import socket
from typing import Any

import httpx
import pytest

from rqretry import AsyncClient
from rqretry.dashboard import live
from rqretry.dashboard.access import Rights
from rqretry.dashboard.http_server import make_server
from rqretry.dashboard.live import Streams
from rqretry.dashboard.sampler import Sampler
from rqretry.dashboard.site import make_site
from tests.contract.admin.bench import Bench
from tests.edges.dashboard.serving import half, serving
from tests.support.chromium import chromium_or_skip

ASK = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def until(condition: Any) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing tells when a connection is gone
            await asyncio.sleep(0.01)


async def test_a_stream_has_an_event_for_each_sample_and_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STREAM_S", 3.0)
    async with serving(bench.url) as (port, _):
        url = f"http://127.0.0.1:{port}/live"
        async with httpx.AsyncClient(timeout=20) as browser:
            answer = await browser.get(url)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: ")
    assert answer.text.count("data: new\n\n") >= 1


async def test_streams_are_bounded_and_end_with_their_reader_or_with_the_server(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 3)
    seen: list[Streams] = []
    original = Streams.__init__

    def noted(self: Streams, sampler: Sampler) -> None:
        seen.append(self)
        original(self, sampler)

    monkeypatch.setattr(Streams, "__init__", noted)
    async with asyncio.timeout(20), serving(bench.url) as (port, _):
        (streams,) = seen
        held = [await half(port, ASK) for _ in range(3)]
        await until(lambda: streams.open == 3)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
            assert (await browser.get("/live")).status_code == 503
            for _, writer in held[1:]:
                writer.transport.abort()  # vanished, without a word
            await until(lambda: streams.open == 1)
            assert (await browser.get("/")).status_code == 200
    assert streams.open == 0  # the server has ended it, at once
    assert b"0\r\n\r\n" in await held[0][0].read()
    held[0][1].close()


async def test_a_page_shows_what_has_happened_without_being_loaded_again(bench: Bench) -> None:
    bench.publish(1, 2, topic="orders")
    ready = "document.querySelector('[data-label=ready]').textContent"
    changed = f"""new Promise(done => {{
        const look = () => {ready} === '3' ? done(window.same) : setTimeout(look, 50);
        look(); }})"""
    with chromium_or_skip() as chromium:
        async with asyncio.timeout(30), serving(bench.url) as (port, _):
            await asyncio.to_thread(chromium.open, f"http://127.0.0.1:{port}/?show=problems")
            assert await asyncio.to_thread(chromium.run, ready) == "2"
            await asyncio.to_thread(chromium.run, "window.same = 'yes'")
            await asyncio.to_thread(bench.publish, 3, topic="orders")
            assert await asyncio.to_thread(chromium.run, changed) == "yes"


async def test_the_address_is_announced_when_the_first_page_has_its_numbers(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened, sample = list[str](), Sampler._sample

    async def noted(self: Sampler) -> Any:
        stats = await sample(self)
        happened.append("numbers")
        return stats

    monkeypatch.setattr(Sampler, "_sample", noted)
    async with AsyncClient(bench.url) as client:

        def announced() -> None:
            happened.append("address")
            server.should_exit = True

        server = make_server(make_site(client, Rights()), announced)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            await server.serve(sockets=[listening])
    assert happened[:2] == ["numbers", "address"]
