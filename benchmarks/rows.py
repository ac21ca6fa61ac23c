"""Rows inserted into SQLite by a batch handler, beside one message at a time.

Each call of the handler is a transaction of a database file: in SQLite's own mode, where each one
waits for the disk, or with `--wal`, where only checkpoints do.

    python -m benchmarks.rows [--rows 1000] [--batch 200] [--wal]
"""

import argparse
import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from rqretry import App, Message
from rqretry.testing.embedded_redis import EmbeddedRedis

INSERT = "INSERT INTO rows VALUES (?, ?)"


def main() -> None:
    """Run both, check what is in the database, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--wal", action="store_true", help="journal_mode WAL, synchronous NORMAL")
    options = parser.parse_args()
    single = measured(options.rows, 0, wal=options.wal)
    batched = measured(options.rows, options.batch, wal=options.wal)
    print(f"one message at a time   {single:10,.0f} rows/s")
    print(f"batches of {options.batch:<5}        {batched:10,.0f} rows/s")
    print(f"ratio                   {batched / single:10.1f}")


def measured(rows: int, batch: int, *, wal: bool) -> float:
    """Rows per second, from the start of a worker to the last row."""
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.sqlite"
        with sqlite3.connect(path) as database:
            if wal:
                database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE rows (id TEXT PRIMARY KEY, value INTEGER)")
        seconds = asyncio.run(inserted(server.url, path, rows, batch, wal=wal))
        (found,) = sqlite3.connect(path).execute("SELECT count(DISTINCT id) FROM rows").fetchone()
    assert found == rows, f"{found} of {rows} rows are there"
    return rows / seconds


async def inserted(url: str, path: Path, rows: int, batch: int, *, wal: bool) -> float:
    """Publish, and work until the last row is there; how many seconds the work took."""
    app = App(url)
    loop, ended, left = asyncio.get_running_loop(), asyncio.Event(), rows
    database = sqlite3.connect(path, check_same_thread=False)
    if wal:
        database.execute("PRAGMA synchronous = NORMAL")

    def store(messages: list[Message[Any]]) -> None:
        nonlocal left
        with database:
            database.executemany(INSERT, [(message.id, message.body) for message in messages])
        left -= len(messages)
        if left <= 0:
            loop.call_soon_threadsafe(ended.set)

    def store_one(message: Message[Any]) -> None:
        store([message])

    if batch:
        app.consumer("rows", group="store", batch=batch, concurrency=1)(store)
    else:
        app.consumer("rows", group="store", concurrency=1)(store_one)
    await app.publish_many("rows", range(rows))
    began = time.monotonic()
    worker = loop.create_task(app.run(signals=False))
    await ended.wait()
    seconds = time.monotonic() - began
    worker.cancel()
    await asyncio.wait([worker])
    return seconds


if __name__ == "__main__":
    main()
