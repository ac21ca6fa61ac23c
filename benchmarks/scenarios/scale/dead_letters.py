"""Operators' verbs on a million dead letters: one of them, all of them, and what they died of.

The dead letters are written as `lua/fail.lua` leaves them: a million messages take too long to die
one by one.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.scenarios.scale.measure import Measure
from benchmarks.servers import Server
from rqretry import Client
from rqretry.admin import dead_letters as verbs
from rqretry.admin.promote_purge_reset import purge
from rqretry.core.failure_record import describe_cause, fingerprint_of_text
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Operation
from rqretry.protocol.inspect import dead_letter_member
from rqretry.protocol.keys import GroupKeys

COUNT = 1_000_000
PARTITIONS, KINDS, GROUP = 4, 20, "bench"
BAR_CALLS, BAR_LIST_S, BAR_MIB = 5, 2, 150
_AT_ONCE, _FEWEST = 5_000, 100
_DIED_MS = 1_700_000_000_000
_WAIT = """
import os, subprocess, sys
program = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(program.pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a program from a small process: what started it counts as memory that it took."""


def dead_letters(most: int | None) -> Iterator[Measure]:
    """The bars of operators' verbs, with up to `most` dead letters."""
    count = max(_FEWEST, min(COUNT, most or COUNT))
    with Server() as server, Client(server.url) as client:
        print(f"  dead letters: {count} of them ...", file=sys.stderr, flush=True)
        some = _fill(server, client, count)
        context = parts_of(client.admin).operations
        for verb in (verbs.dead_letters, verbs.redrive, purge):
            operation: Operation[Any] = verb(context, GROUP, ids=[some.pop()])
            yield Measure(
                f"{verb.__name__}_one_of_{count}_calls", _calls(client, operation), BAR_CALLS
            )
        seconds, _ = _program(server, "list", GROUP)
        yield Measure(f"dlq_list_of_{count}_s", seconds, BAR_LIST_S)
        _, mib = _program(server, "purge", GROUP, "--error", "none", "--dry-run")
        yield Measure(f"dlq_purge_looks_at_{count}_mib", mib, BAR_MIB)
        seconds, mib = _program(server, "redrive", GROUP, "--all", "--yes")
        print(f"  dead letters: all sent back in {seconds:.0f} s", file=sys.stderr, flush=True)
        yield Measure(f"dlq_redrive_all_{count}_mib", mib, BAR_MIB)


def _calls(client: Client, operation: Operation[Any]) -> int:
    """How many calls an operation makes; those to several partitions at once are one."""
    calls = 0

    def counting() -> Operation[None]:
        nonlocal calls
        answer: Any = None
        while True:
            try:
                step = operation.send(answer)
            except StopIteration:
                return
            calls += 1
            answer = yield step

    parts_of(client).store.perform(counting())
    return calls


def _program(server: Server, *request_parts: str) -> tuple[float, float]:
    """The seconds and the most MiB that `rqretry dlq` takes."""
    command = [
        sys.executable,
        "-m",
        "rqretry",
        "dlq",
        request_parts[0],
        "--url",
        server.url,
        *request_parts[1:],
    ]
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _WAIT, *command], stdout=subprocess.PIPE, check=True
    )
    return round(time.monotonic() - start, 2), round(int(done.stdout) / 1024, 1)


def _fill(server: Server, client: Client, count: int) -> list[str]:
    """So many dead letters of 20 errors; the ids of some of them."""
    client.admin.create_topic("t", partitions=PARTITIONS)
    parts_of(client).store.perform(parts_of(client).catalog.join(GROUP, "push", ("t",)))
    stored = client.publish("t", {"n": 1}, id="sample")
    keys = [parts_of(client).catalog.group_keys("t", number, GROUP) for number in range(PARTITIONS)]
    bodies = (server.client.hget(each.partition.bodies, stored) for each in keys)
    body = next(data for data in bodies if data is not None)
    for at in range(0, count, _AT_ONCE):
        numbers = range(at, min(count, at + _AT_ONCE))
        _write(server, keys[at // _AT_ONCE % PARTITIONS], numbers, body)
    return [_id(number) for number in range(0, count, max(1, count // 7))]


def _id(number: int) -> str:
    return f"d{number:015}"


def _write(server: Server, keys: GroupKeys, numbers: range, body: Any) -> None:
    kinds = [describe_cause("failure", f"error {kind}", "w", 0.01) for kind in range(KINDS)]
    deaths = [
        f"17 failure {fingerprint_of_text('failure', f'error {kind}')}" for kind in range(KINDS)
    ]
    rows = [(_id(n), _DIED_MS + n // 50, n % KINDS) for n in numbers]
    with server.client.pipeline(transaction=False) as pipe:
        pipe.hset(keys.partition.bodies, mapping=dict.fromkeys((id_ for id_, _, _ in rows), body))
        pipe.hset(keys.attempts, mapping=dict.fromkeys((id_ for id_, _, _ in rows), "18:17:0:0"))
        pipe.hset(keys.failures, mapping={i: f"17 {ms} {kinds[kind]}\n" for i, ms, kind in rows})
        pipe.hset(keys.deaths, mapping={i: deaths[kind] for i, _, kind in rows})
        pipe.zadd(keys.dead, {id_: ms for id_, ms, _ in rows})
        members = {dead_letter_member(deaths[kind], ms, id_): 0 for id_, ms, kind in rows}
        pipe.zadd(keys.fingerprints, members)
        pipe.execute()
