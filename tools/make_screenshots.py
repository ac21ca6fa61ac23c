"""Make the pictures of the documentation: a running dashboard, photographed by chromium.

    python tools/make_screenshots.py

A shop with a bank that is closed at first runs on a private server; then docs/assets gets the
dashboard's first page, and the timeline of one order that was dead and was sent back.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

from rqretry import App, DeadLetter, Message, RetryPolicy
from rqretry.testing.embedded_redis import EmbeddedRedis

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"
PORT = 8797
ADDRESS = f"http://127.0.0.1:{PORT}"
PATIENCE_S = 60
COLOURS = 128
BUSY_S, PAUSE_S = 30, 0.2
"""For so long the shop is busy before the first page is photographed, the bank shut at the end."""
BAD = 30
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


class Bank:
    """What the handlers call."""

    is_open = False


def shop(url: str, bank: Bank) -> App:
    """The app: two groups of one topic, and a task."""
    app = App(url, namespace="shop")

    @app.consumer("orders", group="billing", policy=RetryPolicy.ladder("200ms", max_retries=2))
    async def bill(message: Message[dict[str, Any]]) -> None:
        if message.body["amount"] < 0:
            raise DeadLetter("a negative amount will never be right")
        if not bank.is_open and message.body["order"] % 4 == 1:
            raise ConnectionError("the bank is closed")

    @app.consumer("parcels", group="shipping", policy=RetryPolicy.rocketmq())
    async def ship(message: Message[dict[str, Any]]) -> None:
        if message.body["order"] % 6 == 0:
            raise TimeoutError("the warehouse does not answer")

    @app.consumer("receipts", group="mail", max_retries=5)
    async def send(message: Message[dict[str, Any]]) -> None:
        del message

    return app


async def dead(app: App, number: int) -> None:
    """Wait until the group of the bank has so many dead letters, and nothing to do."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            stats = await app.admin.stats("orders", "billing")
            if stats.dead == number and not stats.ready + stats.waiting + stats.inflight:
                return
            await asyncio.sleep(0.1)


async def lived(app: App, bank: Bank, show: Callable[[str], None]) -> None:
    """A day of the shop, in seconds; then the pictures, while its worker runs."""
    started = asyncio.Event()
    app.on("started")(lambda _: started.set())
    running = asyncio.ensure_future(app.run(signals=False, grace=1))
    await started.wait()
    orders = [{"order": n, "amount": -1 if n == BAD else 12} for n in range(60)]
    ids = await app.publish_many("orders", orders)
    await app.publish_many("parcels", orders)
    await app.publish_many("receipts", [{"to": "ada@example.org"}] * 40)
    await app.publish("receipts", {"to": "grace@example.org"}, delay="1h")
    await dead(app, 16)
    bank.is_open = True
    chosen = str(ids[17])
    await app.admin.redrive("billing", ids=[chosen])
    await dead(app, 15)
    shown = asyncio.ensure_future(asyncio.to_thread(show, chosen))
    for number in count():
        if shown.done():
            break
        bank.is_open = number < BUSY_S * 2 / 3 / PAUSE_S
        await app.publish_many("orders", orders[: 5 + number % 20])
        await app.publish_many("parcels", orders[1 : 4 + number % 9])
        await asyncio.sleep(PAUSE_S)
        if number == 1:
            await app.admin.pause("mail")
            await app.publish_many("receipts", [{"to": "ada@example.org"}] * 7)
    await shown
    running.cancel()
    await asyncio.wait([running])


def photograph(chromium: str, path: str, name: str, size: str) -> None:
    """One page as a picture of a few colours."""
    place = ASSETS / f"{name}.png"
    with tempfile.TemporaryDirectory() as profile:
        options = (f"--window-size={size}", f"--user-data-dir={profile}", f"--screenshot={place}")
        subprocess.run(
            (chromium, *CHROMIUM, *options, ADDRESS + path), check=True, capture_output=True
        )
    with Image.open(place) as image:
        image.convert("RGB").quantize(COLOURS).save(place, optimize=True)
    print(f"{place.name}: {place.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    """Make both pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no chromium on PATH: install it")
    server = EmbeddedRedis(appendonly=True, extra=("--maxmemory", "1gb"))
    with server, ExitStack() as stack:

        def show(chosen: str) -> None:
            place = ("--url", server.url, "--namespace", "shop", "--port", str(PORT))
            command = (sys.executable, "-m", "rqretry", "dashboard", *place)
            dashboard = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(dashboard.wait)
            stack.callback(dashboard.terminate)
            assert dashboard.stdout is not None
            print(dashboard.stdout.readline().strip())
            time.sleep(BUSY_S)
            photograph(chromium, "/", "dashboard", "1280,730")
            photograph(chromium, f"/message/{chosen}", "timeline", "1400,1000")

        bank = Bank()
        asyncio.run(lived(shop(server.url, bank), bank, show))


if __name__ == "__main__":
    main()
