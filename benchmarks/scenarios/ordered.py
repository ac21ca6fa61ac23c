"""Message groups: one message of each at a time, in the order of publishing."""

from benchmarks.figures import Figures
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Workers, rate_of
from benchmarks.workload import body, check, publish_all
from rqretry import OutgoingMessage

MESSAGE_GROUPS = 100


def ordered(messages: int | None) -> Figures:
    """A hundred message groups in turn, a no-op handler, one process."""
    count = messages or 20_000
    items = [
        OutgoingMessage(body=body(number), message_group=f"g{number % MESSAGE_GROUPS}")
        for number in range(count)
    ]
    with Server() as server:
        cpu = server.cpu_s()
        ids = publish_all(server.url, items)
        with Workers(Job(server.url, "noop", options={"ordered": True})) as workers:
            workers.wait_for(count)
            reports = workers.finish()
        cpu = server.cpu_s() - cpu
    handled = reports[0].tally.ids
    check(ids, handled)
    place = {id_: number for number, id_ in enumerate(ids)}
    newest: dict[int, int] = {}
    for id_ in handled:
        number = place[id_]
        assert newest.get(number % MESSAGE_GROUPS, -1) < number, "a message group is out of order"
        newest[number % MESSAGE_GROUPS] = number
    return Figures(
        rate=rate_of(reports),
        checked=True,
        redis_us=cpu / count * MICROSECONDS,
        worker_us=reports[0].worker_us,
        rss_mb=reports[0].rss_mb,
    )
