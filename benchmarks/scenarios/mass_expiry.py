"""A worker that held many messages is gone: how soon do they start again?"""

from benchmarks.figures import Figures, percentile
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import TOPIC, bodies, check, publish_all
from rqretry import App
from rqretry.core.parts import parts_of
from rqretry.protocol.command import MAX_BATCH
from rqretry.protocol.lease import lease

VISIBILITY_MS = 2000


def mass_expiry(messages: int | None) -> Figures:
    """All leased by somebody who never comes back; lateness is from the end of each lease."""
    count = messages or 20_000
    with Server() as server:
        ids = publish_all(server.url, bodies(count))
        _lease_all(server.url, count)
        deadlines = _deadlines(server)
        cpu = server.cpu_s()
        with Workers(Job(server.url, "timed", options={"visibility": 30})) as workers:
            workers.wait_for(count)
            reports = workers.finish()
        cpu = server.cpu_s() - cpu
    tally = reports[0].tally
    check(ids, tally.ids)
    assert set(tally.attempts) == {2}, "an expired delivery counts as an attempt"
    late = [wall - deadlines[id_] for id_, wall in zip(tally.ids, tally.walls, strict=True)]
    assert min(late) >= 0, "a message was delivered again before its lease was over"
    return Figures(
        rate=rate_of(reports),
        checked=True,
        p50_ms=percentile(late, 50),
        p99_ms=percentile(late, 99),
        redis_us=cpu / count * MICROSECONDS,
        worker_us=reports[0].worker_us,
        more={"latest_ms": max(late)},
    )


def _lease_all(url: str, count: int) -> None:
    app = App(url)
    with app.client as client:
        parts_of(client).store.perform(parts_of(client).catalog.join("bench", "push", [TOPIC]))
        keys = parts_of(client).catalog.group_keys(TOPIC, 0, "bench")
        held = 0
        while held < count:
            command = lease(keys, worker="gone", want=MAX_BATCH, visibility_ms=VISIBILITY_MS)
            held += len(parts_of(client).store.run(command).ids)


def _deadlines(server: Server) -> dict[str, float]:
    (key,) = server.client.keys("*:inflight")
    found = server.client.zrange(key, 0, -1, withscores=True)
    return {id_.decode(): deadline for id_, deadline in found}
