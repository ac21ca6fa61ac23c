"""Message groups: one message of each at a time, in the order of publishing."""

from benchmarks.figures import Figures
from benchmarks.floor import one_by_one_rate
from benchmarks.servers import MICROSECONDS, Server
from benchmarks.workers import Job, Report, Workers, rate_of
from benchmarks.workload import TOPIC, body, check, publish_all
from rqretry import App, OutgoingMessage

MESSAGE_GROUPS = 100
PARTITIONS = 4


def ordered(messages: int | None) -> Figures:
    """A hundred message groups in turn, a no-op handler, one process."""
    with Server() as server:
        return _figures(server, messages or 20_000, MESSAGE_GROUPS)


def ordered_partitions(messages: int | None) -> Figures:
    """The same in a topic of four partitions."""
    with Server() as server:
        with App(server.url).client as client:
            client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        return _figures(server, messages or 20_000, MESSAGE_GROUPS)


def ordered_alone(messages: int | None) -> Figures:
    """One message group alone, beside a bare loop that leases and settles one after another."""
    count = messages or 5_000
    with Server() as server:
        floor = one_by_one_rate(server.url, count)
        return _figures(server, count, 1, floor)


def _figures(server: Server, count: int, message_groups: int, floor: float = 0) -> Figures:
    items = [
        OutgoingMessage(body=body(number), message_group=f"g{number % message_groups}")
        for number in range(count)
    ]
    publishing = server.cpu_s()
    ids = publish_all(server.url, items)
    consuming = server.cpu_s()
    with Workers(Job(server.url, "noop", options={"ordered": True})) as workers:
        workers.wait_for(count)
        (report,) = workers.finish()
    ended = server.cpu_s()
    _check_order(ids, report, message_groups)
    rate = rate_of([report])
    return Figures(
        rate=rate,
        checked=True,
        redis_us=(ended - publishing) / count * MICROSECONDS,
        worker_us=report.worker_us,
        rss_mb=report.rss_mb,
        floor_ratio=rate / floor if floor else None,
        more={"redis_consume_us": (ended - consuming) / count * MICROSECONDS},
    )


def _check_order(ids: list[str], report: Report, message_groups: int) -> None:
    check(ids, report.tally.ids)
    place = {id_: number for number, id_ in enumerate(ids)}
    newest: dict[int, int] = {}
    for id_ in report.tally.ids:
        number = place[id_]
        assert newest.get(number % message_groups, -1) < number, "a message group is out of order"
        newest[number % message_groups] = number
