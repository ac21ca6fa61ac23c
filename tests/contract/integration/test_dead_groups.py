"""Operators who look at groups of which nobody lives: they see what is, and may act on it."""

import json
import time
from typing import Any

import pytest

from rqretry import Client, Message
from rqretry.core.parts import parts_of
from rqretry.core.worker_info import groups_of
from rqretry.protocol.lease import lease
from rqretry.protocol.maintain import live_workers, register
from rqretry.worker.registration import ROSTER_TTL_MS
from tests.contract.integration.harness import NAMESPACE, PATIENCE_S, Lab, until
from tests.edges.cli.shell import Shell

PARTITIONS = pytest.mark.parametrize("partitions", [1, 4])
MANY = 8


def past(client: Client, moment_ms: int) -> None:
    """Wait until the server's clock is behind a moment."""
    end = time.monotonic() + PATIENCE_S
    while parts_of(client).store.perform(parts_of(client).catalog.store.now_ms()) <= moment_ms:
        assert time.monotonic() < end


def left(client: Client, partitions: int, *, deliveries: int = 1) -> list[Message[Any]]:
    """A simple group gets every message so often; then its consumer is gone."""
    client.admin.create_topic("t", partitions=partitions)
    consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=deliveries - 1)
    client.publish_many("t", range(MANY))
    got: list[Message[Any]] = []
    end = time.monotonic() + PATIENCE_S
    while len(got) < MANY * deliveries:
        assert time.monotonic() < end
        got += consumer.receive(32, invisible_duration=0.02, wait=1)
    past(client, parts_of(client).store.perform(parts_of(client).catalog.store.now_ms()) + 25)
    return got[-MANY:]


@PARTITIONS
def test_numbers_count_the_dead_of_a_group_of_which_nobody_lives(lab: Lab, partitions: int) -> None:
    client = lab.client()
    left(client, partitions)
    stats = client.admin.stats(group="g")
    assert (stats.dead, stats.retry, stats.ready, stats.inflight) == (MANY, 0, 0, 0)
    assert client.admin.stats().dead == MANY


@PARTITIONS
def test_dead_letters_of_such_a_group_are_listed_and_sent_back(lab: Lab, partitions: int) -> None:
    client = lab.client()
    ids = {message.id for message in left(client, partitions, deliveries=2)}
    assert {one.id for one in client.admin.dead_letters("g")} == ids
    assert {one.cause for one in client.admin.dead_letters("g")} == {"expired"}
    assert client.admin.redrive("g", all=True) == MANY
    consumer = client.simple_consumer("t", group="g")
    consumer.ack(received(consumer, MANY))
    assert lab.stats("g").counters["succeed"] == MANY


def received(consumer: Any, count: int) -> list[Message[Any]]:
    """So many messages."""
    got: list[Message[Any]] = []
    while len(got) < count:
        got += consumer.receive(32, wait=5) or pytest.fail("nothing came")
    return got


@PARTITIONS
@pytest.mark.parametrize("dry", [True, False])
def test_what_died_unseen_is_redriven_at_once(lab: Lab, partitions: int, *, dry: bool) -> None:
    client = lab.client()
    left(client, partitions)
    assert client.admin.redrive("g", all=True, dry_run=dry) == MANY


@PARTITIONS
def test_one_message_of_such_a_group_is_shown_dead(lab: Lab, partitions: int) -> None:
    client = lab.client()
    for message in left(client, partitions):
        (state,) = client.admin.message(message.id).states
        assert (state.state, state.explain) == ("dead", "dead after 1 delivery, cause expired")


@PARTITIONS
def test_such_a_group_is_purged_and_has_nothing_in_flight(lab: Lab, partitions: int) -> None:
    client = lab.client()
    left(client, partitions)
    assert client.admin.inflight("g") == []
    assert client.admin.purge("g", all=True) == MANY


@PARTITIONS
def test_retries_and_messages_with_a_delay_are_ready_when_they_are_due(
    lab: Lab, partitions: int
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    client.simple_consumer("t", group="g", create_group=True)
    later = [client.publish("t", n, delay=0.01, tag="a" * (n % 2) or None) for n in range(MANY)]
    past(client, parts_of(client).store.perform(parts_of(client).catalog.store.now_ms()) + 15)
    assert client.admin.message(later[0]).states[0].state == "ready"
    assert client.admin.message(later[1]).states[0].state == "ready"
    stats = client.admin.stats(group="g")
    assert (stats.ready, stats.topics[0].scheduled) == (MANY, 0)


@PARTITIONS
def test_what_live_workers_serve_is_left_to_them(lab: Lab, partitions: int) -> None:
    """A jump of the server's clock, which they would notice, must not expire what they have."""
    client = lab.client()
    left(client, partitions)
    appear(client, "g")
    assert client.admin.stats(group="g").retry == MANY
    assert client.admin.dead_letters("g") == []


@PARTITIONS
def test_a_command_that_moved_something_mentions_it(lab: Lab, partitions: int) -> None:
    left(lab.client(), partitions)
    sh = Shell(lab.url)
    listed = sh("dlq", "list", "g", "--namespace", NAMESPACE)
    assert listed.stderr == f"first moved what was due in what was read: {MANY} expired\n"
    assert sh("dlq", "list", "g", "--namespace", NAMESPACE).stderr == ""


@pytest.mark.parametrize(
    "about",
    [
        {"groups": ["g"], "topics": ["u"]},
        {"groups": ["g", "h"], "topics": ["t", "u"], "consumed": {"g": ["u"], "h": ["t"]}},
    ],
    ids=["other topics", "each for another group"],
)
@PARTITIONS
def test_a_worker_of_other_topics_serves_nothing_here(
    lab: Lab, partitions: int, about: dict[str, Any]
) -> None:
    client = lab.client()
    first, *_ = left(client, partitions)
    appear(client, "g", about=about)
    (state,) = client.admin.message(first.id).states
    assert state.state == "dead"
    assert len(client.admin.dead_letters("g")) == MANY
    assert client.admin.stats(group="g").dead == MANY


async def test_a_worker_registers_what_it_consumes_for_which_group(lab: Lab) -> None:
    app = lab.app()
    app.consumer("u", group="g")(print)
    app.consumer("t", group="h")(print)
    parts = parts_of(lab.client())
    async with lab.working(app):
        await until(lambda: bool(parts.store.perform(live_workers(parts.catalog.keys))))
        (worker,) = parts.store.perform(live_workers(parts.catalog.keys))
    about = groups_of(worker.about)
    serves = {(g, t) for g in "gh" for t in "tu" if about.serves(g, t)}
    assert serves == {("g", "u"), ("h", "t")}


@PARTITIONS
def test_a_worker_that_was_killed_is_waited_for_no_longer_than_it_is_registered(
    lab: Lab, partitions: int
) -> None:
    assert ROSTER_TTL_MS == 15_000
    client = lab.client()
    left(client, partitions)
    appear(client, "g", ttl_ms=200)
    assert client.admin.dead_letters("g") == []
    now_ms = parts_of(client).store.perform(parts_of(client).catalog.store.now_ms())
    past(client, now_ms + 200)
    assert len(client.admin.dead_letters("g")) == MANY


@PARTITIONS
async def test_a_worker_of_a_paused_group_goes_on_with_what_is_due(
    lab: Lab, partitions: int
) -> None:
    client, app = lab.client(), lab.app()
    client.admin.create_topic("t", partitions=partitions)
    app.consumer("t", group="g", max_retries=0)(print)
    async with lab.working(app):
        pass
    id_ = client.publish("t", 1)
    catalog, store = parts_of(client).catalog, parts_of(client).store
    places = [catalog.group_keys("t", number, "g") for number in range(partitions)]
    for keys in places:
        store.run(lease(keys, worker="killed", want=1, visibility_ms=600))
    client.admin.pause("g")
    async with lab.working(app):
        await until(lambda: client.admin.stats(group="g").dead == 1, 3.0)
        (event,) = [e for e in client.admin.timeline(id_) if e.event == "expire"]
    assert event.worker not in ("", "killed")


def appear(
    client: Client, group: str, *, about: dict[str, Any] | None = None, ttl_ms: int = 60_000
) -> None:
    """A worker registers."""
    text = json.dumps({"groups": [group], "topics": ["t"], "pid": 7} | (about or {}))
    parts = parts_of(client)
    parts.store.run(register(parts.catalog.keys, worker="w", about=text, ttl_ms=ttl_ms))
