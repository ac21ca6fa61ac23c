"""Run seeds, many at once: python -m tests.model.simulation --seeds 5000 --seed 1

A seed that fails is printed with the command that replays it, and made small.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import Value
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from tests.model.simulation.plans import plan_of
from tests.model.simulation.server import Server, virtual_scripts
from tests.model.simulation.shrinking import replay, run, shrink, write
from tests.model.simulation.world import Outcome

AT_ONCE = 20


def main() -> int:
    """Status 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after another")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many at once; default: each core"
    )
    parser.add_argument("--replay", type=Path, help="a file of tests/model/simulation/seeds")
    parser.add_argument("--trace", action="store_true", help="print every event of the seed")
    parser.add_argument("--shrink", action="store_true", help="make a seed that fails small")
    options = parser.parse_args()
    if options.replay or options.seeds == 1:
        return alone(options)
    return many(options.seed, options.seeds, options.jobs)


def alone(options: argparse.Namespace) -> int:
    """One run, told in detail."""
    durable = options.replay is None and plan_of(options.seed).restart == "crash"
    with Server(virtual_scripts(), appendonly=durable) as server:
        if options.replay:
            outcome = replay(server, options.replay, traced=options.trace)
        else:
            outcome = run(server, options.seed, traced=options.trace)
        say("\n".join(outcome.events))
        say(described(outcome))
        if outcome.failure and options.shrink:
            kept, last = shrink(server, outcome)
            say(f"{len(outcome.taken)} choices, of which {len(kept)} are needed:")
            say("\n".join(kept), last.failure, f"kept as {write(kept, last)}")
    return 1 if outcome.failure else 0


def many(first: int, count: int, jobs: int) -> int:
    """All seeds, over some processes."""
    begun, done, failed, requests, messages, digest = time.perf_counter(), 0, 0, 0, 0, 0
    with ProcessPoolExecutor(jobs, initializer=settle, initargs=(Value("i"),)) as pool:
        parts = [
            pool.submit(several, at, min(AT_ONCE, first + count - at))
            for at in range(first, first + count, AT_ONCE)
        ]
        for part in as_completed(parts):
            for outcome in part.result():
                done += 1
                requests += outcome.requests
                messages += outcome.messages
                digest ^= outcome.digest
                if outcome.failure:
                    failed += 1
                    say(described(outcome))
            if done % 500 == 0:
                say(f"{done} of {count} seeds, {failed} failed")
    seconds = time.perf_counter() - begun
    say(
        f"{done} seeds from {first}, {failed} failed, {messages} messages,"
        f" {requests} requests, digest {digest:08x}, {seconds:.0f} s, {done / seconds:.1f} seeds/s"
    )
    return 1 if failed else 0


def several(first: int, count: int) -> list[Outcome]:
    """Some seeds in this process, which keeps its servers."""
    outcomes = []
    for seed in range(first, first + count):
        server = server_for(plan_of(seed).restart == "crash")
        outcomes.append(run(server, seed))
        gc.collect()
    return outcomes


def settle(settled: "Synchronized[int]") -> None:
    """Make a process of many quick.

    It and its servers stay on one core: they work in turns, and to wake up another core takes
    longer than a request. A run keeps every task to its end: looking for garbage among them is in
    vain.
    """
    gc.disable()
    gc.freeze()
    with settled.get_lock():
        number, settled.value = settled.value, settled.value + 1
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)]})


_servers: dict[bool, Server] = {}


def server_for(durable: bool) -> Server:
    """A server of this process, which ends with it."""
    if durable not in _servers:
        _servers[durable] = Server(virtual_scripts(), appendonly=durable)
        _servers[durable].__enter__()
    return _servers[durable]


@contextmanager
def servers() -> Iterator[None]:
    """Stop the servers of this process at the end."""
    try:
        yield
    finally:
        while _servers:
            _servers.popitem()[1].__exit__(None, None, None)


def described(outcome: Outcome) -> str:
    """One seed in a line or two."""
    if not outcome.failure:
        return (
            f"seed {outcome.seed}: {outcome.messages} messages, {outcome.requests} requests,"
            f" {outcome.virtual_s:.1f} virtual s, digest {outcome.digest:08x}"
        )
    command = f"python -m tests.model.simulation --seed {outcome.seed} --shrink"
    return f"seed {outcome.seed} FAILED: {outcome.failure}\n  {command}"


def say(*lines: str) -> None:
    """Tell whoever looks on."""
    for line in lines:
        if line:
            sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
