"""Through how many files of rqretry/ one message goes: published, and handled by a worker.

A private Redis, an app and one worker with a plain async consumer. Recorded with `sys.setprofile`:
the files entered by one warm `await app.publish(...)`, and by an idle warm worker from its wake-up
until the result of one message is settled. Exit status 1 past a bound.

    python tools/trace_files.py                the files and their counts
    python tools/trace_files.py --functions    the functions entered in each, too
"""

import argparse
import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import rqretry
from rqretry import App
from rqretry.testing.embedded_redis import EmbeddedRedis

PACKAGE = Path(rqretry.__file__).parent
PUBLISH_MOST, CONSUME_MOST = 9, 14
WARM_UP = 20
IDLE_S, SETTLED_S = 0.3, 0.3
UPKEEP = {
    "reaper": "moves what is due, at its own times",
    "registration": "renews the entry of this worker in the list of workers every five seconds",
    "partition watch": "looks for new partitions every five seconds",
    "tally": "writes the counters of broadcast groups every second",
    "announcer": "runs callbacks, and there are none",
    "transaction checks": "looks for undecided transactions",
    "schedules": "publishes periodic messages",
    "orders watch": "looks for attempts past their deadline, at its own times",
}
"""Tasks that are not the way of a message, whatever they do meanwhile; by name, with the reason.
The heartbeat is left out by its thread: a profile is of one thread."""

Files = dict[str, set[str]]


def main() -> int:
    """Trace both, print the files; 1 if there are more than the bounds allow."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--functions", action="store_true", help="print what is entered in each")
    options = parser.parse_args()
    with EmbeddedRedis() as redis:
        published, consumed = asyncio.run(trace(redis.url))
    past = report("one publish", published, PUBLISH_MOST, functions=options.functions)
    title = "wake-up, lease, run and settle"
    past |= report(title, consumed, CONSUME_MOST, functions=options.functions)
    return 1 if past else 0


async def trace(url: str) -> tuple[Files, Files]:
    """The files that a publish enters, and those that handling a message does."""
    app = App(url, namespace="trace")
    handled: asyncio.Queue[str] = asyncio.Queue()

    @app.consumer("orders", group="orders")
    async def handle(message: rqretry.Message[Any]) -> None:
        handled.put_nowait(message.id)

    for number in range(WARM_UP):
        await app.publish("orders", {"number": number})
    with recorded() as published:
        await app.publish("orders", {"number": WARM_UP})
    worker = asyncio.get_running_loop().create_task(app.run(signals=False))
    for _ in range(WARM_UP + 1):
        await handled.get()
    await publish_elsewhere(app, handled)  # the first wake-up
    with recorded() as consumed:
        await publish_elsewhere(app, handled)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    await app.aclose()
    return published, consumed


async def publish_elsewhere(app: App, handled: asyncio.Queue[str]) -> None:
    """Publish from another thread to a worker that waits; returns when it waits again."""
    await asyncio.sleep(IDLE_S)
    await asyncio.to_thread(lambda: app.client.publish("orders", {"number": -1}))
    await handled.get()
    await asyncio.sleep(SETTLED_S)


@contextmanager
def recorded() -> Iterator[Files]:
    """The files and functions of rqretry/ that this thread enters inside the block."""
    found: Files = defaultdict(set)
    sys.setprofile(recorder(found))
    try:
        yield found
    finally:
        sys.setprofile(None)


def recorder(found: Files) -> Callable[[FrameType, str, Any], None]:
    """What `sys.setprofile` calls."""
    root = f"{PACKAGE}/"

    def record(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and current_task() not in UPKEEP:
            found[code.co_filename.removeprefix(root)].add(code.co_qualname)

    return record


def current_task() -> str:
    """The name of the task that runs, "" in a callback of the event loop."""
    task = asyncio.current_task()
    return "" if task is None else task.get_name()


def report(title: str, files: Files, most: int, *, functions: bool) -> bool:
    """Print the files; whether there are too many."""
    past = len(files) > most
    verdict = "PAST THE BOUND" if past else "ok"
    print(f"{title}: {len(files)} files (at most {most})  {verdict}")
    for path in sorted(files):
        entered = f"  {', '.join(sorted(files[path]))}" if functions else ""
        print(f"  {path}{entered}")
    return past


if __name__ == "__main__":
    sys.exit(main())
