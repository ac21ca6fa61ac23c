"""rqretry status: how many messages are where, for each topic and group."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict

import click

from rqretry.admin.incidents import incidents, other_version
from rqretry.admin.results import WorkerInfo
from rqretry.admin.views import GroupStats, Stats, TopicStats
from rqretry.cli.confirmation import counted
from rqretry.cli.live_screen import screen
from rqretry.cli.options import duration, json_command
from rqretry.cli.output import Part, clean, fields_of, note, print_json, print_page, table_of
from rqretry.cli.reasons import reason_fields, reason_lines
from rqretry.cli.session import connected, elsewhere
from rqretry.cli.sizes import in_bytes, memory_line
from rqretry.cli.status_since import MINUTE_S, WEEK_S, past_fields, past_page, read_past
from rqretry.cli.status_watch import MOST_WATCHED, details, worst_first
from rqretry.client import Client
from rqretry.core.durations import spell
from rqretry.core.errors import AmbiguousResult, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.core.rates import describe_limits
from rqretry.core.route import QUEUE
from rqretry.worker.stop_signals import Stoppable, StoppedEarly

WATCH_EVERY_S = 2.0
_JUDGED = ("RedisNearlyFull", "TopicNearlyFull", "BacklogOld", "UpkeepMissing", "VersionsDiffer")
RATED = ("publish", "lease", "succeed", "fail")


@click.command(epilog="Example: rqretry status claims --json")
@click.argument("topic", required=False)
@click.option(
    "--watch",
    is_flag=True,
    help="Refresh every 2 s, the worst groups first, with ladder, workers and deaths.",
)
@click.option(
    "--since",
    metavar="DURATION",
    callback=duration(MINUTE_S, WEEK_S),
    help="Add what each group did in this time, as far as it is recorded: 10m, 2h, 7d.",
)
@json_command
def status(
    context: click.Context, *, topic: str | None, watch: bool, since: float | None, as_json: bool
) -> None:
    """Show per group what is ready, in flight, waiting and dead.

    Where no worker lives, what is due is moved first; where one does, it counts as ready. Below the
    table: groups without a live worker, topics without a group, how much of the server's memory
    they use, and the three commonest errors of what waits for a retry.
    """
    if watch and as_json:
        raise click.UsageError("--watch cannot be combined with --json: keep one")
    if watch and since:
        raise click.UsageError("--watch cannot be combined with --since: keep one")
    with connected(context) as client:
        if watch:
            _watch(client, topic)
            return
        stats, fault = client.admin.stats(topic), parts_of(client).store.look()
        workers = client.admin.workers()
        reasons, past = client.admin.reasons(topic), read_past(client, stats, since)
        if not stats.topics:
            note(f"namespace {stats.namespace} has no topics{elsewhere(client)}")
    if as_json:
        fields: dict[str, object] = {"namespace": stats.namespace}
        fields["topics"] = [
            fields_of(t, "topic partitions")
            | {
                "groups": [
                    _group(g)
                    | reason_fields(reasons, t.topic, g.group)
                    | past_fields(past, t.topic, g.group)
                    for g in t.groups
                ]
            }
            for t in stats.topics
        ]
        if stats.open_transactions:
            unfinished, parked = stats.open_transactions, stats.parked_transactions
            fields["transactions"] = {"unfinished": unfinished, "parked": parked}
        if fault:
            fields["eviction"] = fault
        if (differ := other_version(workers)) is not None:
            fields["other_versions"] = dict(differ.workers)
        if stats.refused:
            fields["refused"] = list(stats.refused)
        print_json(fields)
    else:
        page = [*_page(stats, fault, workers), *reason_lines(reasons), *past_page(past)]
        print_page(page)


def _watch(client: Client, topic: str | None) -> None:
    """Refresh until stopped, which is success; an unreachable server is retried."""
    with suppress(StoppedEarly), Stoppable(), screen() as shown:
        before, at = client.admin.stats(topic), time.monotonic()
        page = [*_watched(client, before)]
        shown.show(page)
        while shown.wait(WATCH_EVERY_S):
            try:
                after, now = client.admin.stats(topic), time.monotonic()
                worst = worst_first(after)
                page = [*_watched(client, after), *reason_lines(client.admin.reasons(topic))]
                page += [*rates(before, worst, now - at), *details(client, worst)]
            except (StoreUnavailable, AmbiguousResult) as error:
                shown.show([*page, "", clean(f"{error}; trying again")])
                continue
            shown.show(page)
            before, at = after, now


def _watched(client: Client, stats: Stats) -> Iterator[Part]:
    """The page of the groups that need somebody most."""
    workers = client.admin.workers()
    yield from _page(worst_first(stats), parts_of(client).store.look(), workers)
    if (others := sum(1 for _ in stats.groups) - MOST_WATCHED) > 0:
        yield f"{counted(others, 'more group')} with less to do are in rqretry status"


def rates(before: Stats, after: Stats, seconds: float) -> list[str]:
    """What each group did between two polls, per second."""
    then = {(t.topic, g.group): g.counters for t in before.topics for g in t.groups}
    lines = []
    for topic in after.topics:
        for group in topic.groups:
            was = then.get((topic.topic, group.group), {})
            done = [
                f"{verb} {(group.counters.get(verb, 0) - was.get(verb, 0)) / seconds:.1f}/s"
                for verb in RATED
            ]
            lines.append(f"group {group.group} of {topic.topic}: {', '.join(done)}")
    return lines


def _page(stats: Stats, fault: str | None, workers: Sequence[WorkerInfo]) -> Iterator[Part]:
    yield from _numbers(stats)
    yield from _transactions(stats)
    yield from filter(None, [memory_line(stats), fault])
    yield from map(clean, _incidents(stats, workers))
    yield from map(clean, stats.refused)


def _incidents(stats: Stats, workers: Sequence[WorkerInfo]) -> Iterator[str]:
    """What the dashboard and the alerts judge wrong, and no other line says."""
    for one in incidents(stats, workers=workers):
        if one.name in _JUDGED:
            of = f"group {one.group} of topic {one.topic}: " if one.group else ""
            yield f"{of or (one.topic and f'topic {one.topic} ')}{one.text}"


def _transactions(stats: Stats) -> list[str]:
    lines = []
    if stats.open_transactions:
        lines.append(f"{counted(stats.open_transactions, 'transaction')} not finished")
    if stats.parked_transactions:
        parked = counted(stats.parked_transactions, "transaction")
        lines.append(f"{parked} parked, for you to decide: see rqretry transaction list --parked")
    return lines


def print_stats(stats: Stats) -> None:
    """A table of all groups, and topics without one."""
    print_page(_numbers(stats))


def _numbers(stats: Stats) -> Iterator[Part]:
    rows = [_row(topic, group) for topic in stats.topics for group in topic.groups]
    if rows:
        yield table_of(
            [
                "topic", "group", "#ready", "#retry", "#inflight", "#waiting", "#dead", "oldest",
                "#workers", "levels",
            ],
            rows,
        )  # fmt: skip
    yield from (clean(sentence) for topic in stats.topics for sentence in _sentences(topic))


def _row(topic: TopicStats, group: GroupStats) -> tuple[object, ...]:
    oldest = "" if group.oldest_age_s is None else spell(round(group.oldest_age_s))
    rungs = " ".join(f"{rung.level}:{rung.count}" for rung in group.waiting)
    return (
        topic.topic, group.group, group.ready, group.retry, group.inflight, group.waiting_count,
        group.dead, oldest, group.workers, rungs,
    )  # fmt: skip


def _sentences(topic: TopicStats) -> list[str]:
    """What a table of groups does not show."""
    shown = []
    if topic.stored or topic.max_messages is not None:
        shown.append(_size(topic))
    shown += _kept(topic)
    shown += _compressed(topic)
    if not topic.groups:
        waiting = counted(topic.backlog, "message")
        shown.append(f"topic {topic.topic} has no consumer group: {waiting} waiting for one")
    if topic.scheduled:
        delayed = counted(topic.scheduled, "delayed message")
        shown.append(f"topic {topic.topic} has {delayed} not due yet")
    for group in topic.groups:
        waits = group.ready + group.retry
        if group.kind == "push" and not group.workers:
            has = f"{counted(waits, 'message')} ready and " if waits else ""
            shown.append(f"group {group.group} of topic {topic.topic} has {has}no live worker")
        if waits and group.slots:
            shown.append(_drain(topic.topic, group))
        if group.paused:
            shown.append(f"group {group.group} is paused")
        shown += _subscription(topic.topic, group)
        if group.max_inflight is not None or group.rate_limit is not None:
            limits = describe_limits(group.rate_limit, group.max_inflight)
            shown.append(f"group {group.group} is limited to {limits}")
        if group.ordered:
            count = counted(group.blocked, "ready message")
            shown.append(
                f"group {group.group} of topic {topic.topic} is ordered: {count} blocked by"
                " an unfinished one of their message group"
            )
            shown += _order(topic.topic, group)
    return shown


def _drain(topic: str, group: GroupStats) -> str:
    """How busy the workers of a group are, and how long what could run takes them."""
    busy = f"group {group.group} of topic {topic} runs {group.busy} of {group.slots} slots"
    if group.drain_s is None:
        return f"{busy} and finished nothing in the last minute"
    rate = f"{group.done_per_s:.3g} messages/s of the last minute"
    return f"{busy}; at the {rate} what could run takes {spell(max(1, round(group.drain_s)))}"


def _kept(topic: TopicStats) -> list[str]:
    if not topic.keep_s:
        return []
    takes = f"{counted(topic.kept, 'consumed message')}, {in_bytes(topic.kept_bytes)}"
    return [f"topic {topic.topic} keeps {takes}, for {spell(topic.keep_s)}"]


def _compressed(topic: TopicStats) -> list[str]:
    if not topic.compress_from:
        return []
    ratio, least = topic.compression_ratio, in_bytes(topic.compress_from)
    shrinks = "" if ratio is None else f": what it stores would take {ratio:.1f} times as much"
    return [f"topic {topic.topic} compresses bodies of {least} and more{shrinks}"]


def _subscription(topic: str, group: GroupStats) -> Iterator[str]:
    """What a group takes, and what its workers named instead."""
    takes = "everything" if group.tags == "*" else group.tags
    if group.tags != "*" or group.filtered:
        count = counted(group.filtered, "message")
        yield f"group {group.group} of topic {topic} takes {takes}: {count} filtered"
    if group.other_tags:
        number = counted(len(group.other_tags), "live worker")
        yield (
            f"group {group.group} of topic {topic} takes {takes}, and {number} named something else"
            f" at the start: {', '.join(dict.fromkeys(group.other_tags))}"
        )


def _order(topic: str, group: GroupStats) -> Iterator[str]:
    """What a group does with messages without a message group, and what is blocked for how long."""
    how = "one at a time in each partition" if group.unordered == QUEUE else "all at once"
    yield f"group {group.group} of topic {topic} handles messages without a message group {how}"
    for one in group.blockers:
        name = f"message group {one.message_group} of" if one.message_group else "the queue of"
        yield (
            f"{name} partition {one.partition} has been blocked for"
            f" {spell(round(one.blocked_s))} by message {one.id}, attempt {one.attempt}, with"
            f" {counted(one.behind, 'message')} behind it"
        )
    if (others := group.blocked_groups - len(group.blockers)) > 0:
        yield f"{counted(others, 'more message group')} blocked, for less long"


def _size(topic: TopicStats) -> str:
    most = "" if topic.max_messages is None else f" of at most {topic.max_messages}"
    takes = "" if topic.bytes is None else f", {in_bytes(topic.bytes)}"
    return f"topic {topic.topic} stores {counted(topic.stored, 'message')}{most}{takes}"


def _group(group: GroupStats) -> dict[str, object]:
    """The fields of every group; those of tags, order and limits only where it has them."""
    filters = group.tags != "*" or group.filtered
    tags = {"tags": group.tags, "filtered": group.filtered} if filters else {}
    if group.other_tags:
        tags["other_tags"] = list(group.other_tags)
    order: dict[str, object] = {}
    if group.ordered:
        order = fields_of(group, "blocked unordered blocked_groups blocked_s")
        order["blockers"] = [asdict(blocker) for blocker in group.blockers]
    limits = {"max_inflight": group.max_inflight, "rate_limit": group.rate_limit}
    limits = {name: value for name, value in limits.items() if value is not None}
    numbers = fields_of(group, "group kind ready retry inflight dead oldest_age_s paused workers")
    numbers["oldest_ages_s"] = group.oldest_ages_s
    if group.slots:
        numbers |= fields_of(group, "busy slots done_per_s drain_s")
    waiting = [asdict(rung) for rung in group.waiting]
    return tags | order | limits | numbers | {"waiting": waiting}
