"""rqretry status: how many messages are where, for each topic and group."""

import click

from rqretry.client import Client
from rqretry.durations import spell
from rqretry.edge.cli.options import json_option, server_options
from rqretry.edge.cli.output import note, print_json, print_table
from rqretry.edge.cli.session import connected, elsewhere
from rqretry.errors import TopicNotFound
from rqretry.views import GroupStats, Stats, TopicStats, Waiting


@click.command(epilog="Example: rqretry status claims --json")
@click.argument("topic", required=False)
@json_option
@server_options
@click.pass_context
def status(context: click.Context, *, topic: str | None, as_json: bool) -> None:
    """Show per group what is ready, in flight, waiting per level, and dead.

    What is due counts as ready, whether or not a worker has moved it yet.
    """
    with connected(context) as client:
        stats = read_stats(client, topic)
        if not stats.topics:
            note(f"namespace {stats.namespace} has no topics{elsewhere(client)}")
    if as_json:
        print_json({"namespace": stats.namespace, "topics": [_topic(t) for t in stats.topics]})
    else:
        print_stats(stats)


def read_stats(client: Client, topic: str | None) -> Stats:
    """The figures of one topic or all; an unknown one is an error that names other namespaces."""
    try:
        return client.admin.stats(topic)
    except TopicNotFound as error:
        raise TopicNotFound(f"{error}{elsewhere(client)}") from None


def print_stats(stats: Stats) -> None:
    """A table of all groups, and what has no group."""
    rows = [_row(topic, group) for topic in stats.topics for group in topic.groups]
    if rows:
        print_table(
            [
                "topic", "group", "#ready", "#retry", "#inflight", "#waiting", "#dead", "oldest",
                "#workers", "levels",
            ],
            rows,
        )  # fmt: skip
    for topic in stats.topics:
        for sentence in _beside(topic):
            click.echo(sentence)


def _row(topic: TopicStats, group: GroupStats) -> tuple[object, ...]:
    oldest = "" if group.oldest_age_s is None else spell(round(group.oldest_age_s))
    rungs = " ".join(f"{rung.level}:{rung.count}" for rung in group.waiting)
    return (
        topic.topic, group.group, group.ready, group.retry, group.inflight, group.waiting_count,
        group.dead, oldest, group.workers, rungs,
    )  # fmt: skip


def _beside(topic: TopicStats) -> list[str]:
    """What a table of groups does not show."""
    shown = []
    if not topic.groups:
        waiting = f"{topic.backlog} messages wait for its first one"
        shown.append(f"topic {topic.topic} has no consumer group; {waiting}")
    if topic.scheduled:
        shown.append(f"topic {topic.topic} has {topic.scheduled} delayed messages not due yet")
    for group in topic.groups:
        waits = group.ready + group.retry
        if group.kind == "push" and waits and not group.workers:
            shown.append(f"group {group.group} has {waits} messages ready and no live worker")
        if group.paused:
            shown.append(f"group {group.group} is paused")
    return shown


def _topic(topic: TopicStats) -> dict[str, object]:
    return {
        "topic": topic.topic,
        "partitions": topic.partitions,
        "groups": [_group(group) for group in topic.groups],
    }


def _group(group: GroupStats) -> dict[str, object]:
    return {
        "group": group.group,
        "kind": group.kind,
        "ready": group.ready,
        "retry": group.retry,
        "inflight": group.inflight,
        "waiting": [_rung(rung) for rung in group.waiting],
        "dead": group.dead,
        "oldest_age_s": group.oldest_age_s,
        "paused": group.paused,
        "workers": group.workers,
    }


def _rung(rung: Waiting) -> dict[str, int]:
    return {"level": rung.level, "count": rung.count, "next_due_ms": rung.next_due_ms}
