"""Versions side by side: what another one stored stays, and a newer schema stops the older one."""

import asyncio
import json
import logging
from typing import Any

import pytest

from rqretry import ConfigError
from rqretry.catalog import store as catalog_store
from rqretry.core.catalog_records import SCHEMA
from rqretry.core.parts import parts_of
from rqretry.protocol.maintain import register
from rqretry.worker import registration
from tests.contract.integration.harness import PATIENCE_S, Lab, Seen, until

LATER = {"in_later": {"deep": [1]}}


def record_of(lab: Lab, kind: str, name: str) -> dict[str, Any]:
    """A record of the catalog as it is stored."""
    found: dict[str, Any] = json.loads(lab.redis.hget(f"rqretry:test:{{test}}:{kind}", name))
    return found


def store_later(lab: Lab, kind: str, name: str) -> None:
    """A later version writes the record, with fields that this one does not know."""
    record = record_of(lab, kind, name) | LATER
    if kind == "topics":
        record["groups"] = [[*group, *["*", False][len(group) - 3 :], "more", 7]
                            for group in record["groups"]]  # fmt: skip
    else:
        record["policy"]["in_later"] = 1
    lab.redis.hset(f"rqretry:test:{{test}}:{kind}", name, json.dumps(record))


async def test_fields_of_a_later_version_survive_every_change(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="one", create_group=True).receive(wait=0)
    store_later(lab, "topics", "orders")
    store_later(lab, "groups", "one")
    other = lab.client()
    admin = other.admin

    admin.set_topic("orders", max_messages=9)
    admin.set_topic("orders", partitions=2)
    other.simple_consumer("orders", group="two", create_group=True, tags="a").receive(wait=0)
    admin.unsubscribe("two", "orders")
    admin.set_group("one", max_retries=3, pin=True)
    admin.pause("one")
    admin.resume("one")
    other.simple_consumer("orders", group="one", tags="a || b").receive(wait=0)
    other.publish("orders", 1, tag="a")

    assert len(other.simple_consumer("orders", group="one").receive(wait=PATIENCE_S)) == 1
    topic, group = record_of(lab, "topics", "orders"), record_of(lab, "groups", "one")
    assert topic | LATER == topic
    assert topic["groups"] == [["one", 1, "simple", "a || b", False, "more", 7]]
    assert (topic["partitions"], topic["max_messages"]) == (2, 9)
    assert group | LATER == group
    assert (group["policy"]["in_later"], group["max_retries"]) == (1, 3)


def raise_schema(lab: Lab) -> None:
    set_schema(lab, SCHEMA + 1)


def set_schema(lab: Lab, schema: int) -> None:
    key = "rqretry:test:{test}:settings"
    settings = json.loads(lab.redis.hget(key, "settings"))
    lab.redis.hset(key, "settings", json.dumps(settings | {"schema": schema, "later": 1}))


def lower_schema(lab: Lab) -> None:
    set_schema(lab, SCHEMA)


async def test_a_worker_stops_when_a_newer_version_takes_the_namespace(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "ROSTER_EVERY_S", 0.02)
    app, seen = lab.app(), Seen()
    app.consumer("orders", group="one")(seen.add)
    worker = asyncio.get_running_loop().create_task(app.run(signals=False))
    await app.publish("orders", 1)
    await seen.count(1)
    raise_schema(lab)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ConfigError, match="schema 2, written by a newer rqretry"):
            await worker
    lower_schema(lab)


async def test_a_simple_consumer_and_an_operator_stop_too(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    consumer = client.simple_consumer("orders", group="one", create_group=True)
    assert consumer.receive(wait=0) == []
    raise_schema(lab)
    assert client.admin.groups()  # not read again yet
    monkeypatch.setattr(catalog_store, "SCHEMA_EVERY_S", 0.0)
    with pytest.raises(ConfigError, match="schema 2"):
        client.admin.pause("one")
    with pytest.raises(ConfigError, match="schema 2"):
        consumer.receive(wait=10)
    lower_schema(lab)
    client.admin.pause("one")


async def test_the_first_client_of_a_newer_schema_takes_the_namespace_over(lab: Lab) -> None:
    lab.client(delay_levels="1s 5s").admin.create_topic("orders")
    set_schema(lab, SCHEMA - 1)
    assert [topic.name for topic in lab.client().admin.topics()] == ["orders"]
    kept = json.loads(lab.redis.hget("rqretry:test:{test}:settings", "settings"))
    assert kept == {"schema": SCHEMA, "delay_levels": "1000 5000", "later": 1}


async def test_damaged_settings_are_named(lab: Lab) -> None:
    lab.client().admin.create_topic("orders")
    key = "rqretry:test:{test}:settings"
    before = lab.redis.hget(key, "settings")
    for damage in (b"{", b"[]", b"\xff", b'{"schema":"x"}', b'{"schema":1,"delay_levels":7}'):
        lab.redis.hset(key, "settings", damage)
        with pytest.raises(ConfigError, match="settings of the namespace are damaged"):
            lab.client().admin.topics()
    lab.redis.hset(key, "settings", before)


async def test_a_worker_says_that_others_run_other_scripts(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    app, client = lab.app(), lab.client()
    app.consumer("orders", group="one")(lambda _message: None)
    about = json.dumps({"groups": ["one"], "topics": ["orders"], "pid": 7, "scripts": "0ld"})
    keys = parts_of(client).catalog.keys
    parts_of(client).store.run(register(keys, worker="host:1", about=about, ttl_ms=60_000))
    with caplog.at_level(logging.WARNING, "rqretry"):
        async with lab.working(app):
            await until(lambda: "1 live workers run other scripts" in caplog.text)
    assert "host:1 among them" in caplog.text


DAMAGED = (b"{", b"[]", b"\xff{}", b'{"partitions":"4","version":1,"next_byte":1,"groups":[]}',
           b'{"partitions":1000000000,"version":1,"next_byte":1,"groups":[]}',
           b'{"partitions":1,"version":1,"next_byte":1,"groups":[["g"]]}', b"null")  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
async def test_a_damaged_record_concerns_its_topic_alone(lab: Lab, damage: bytes) -> None:
    client = lab.client()
    client.admin.create_topic("good", partitions=2)
    client.simple_consumer("good", group="one", create_group=True).receive(wait=0)
    id_ = client.publish("good", 1)
    later = client.publish("good", 2, delay=60)
    for kind in ("topics", "groups"):
        lab.redis.hset(f"rqretry:test:{{test}}:{kind}", "bad", damage)
    other = lab.client()
    admin = other.admin

    assert [topic.name for topic in admin.topics()] == ["good"]
    assert [group.name for group in admin.groups()] == ["one"]
    assert [topic.topic for topic in admin.stats().topics] == ["good"]
    assert admin.message(id_).topic == "good"
    assert admin.timeline(id_)
    assert other.recall(later)
    problems = admin.fsck(repair=True).left
    assert [(p.kind, p.key.rpartition(":")[2], p.id) for p in problems] == [
        ("damaged record", "topics", "bad"), ("damaged record", "groups", "bad")
    ] or len(problems) == 2  # fmt: skip
    assert all(problem.advice for problem in problems)
    with pytest.raises(Exception, match="record of topic 'bad' is damaged"):
        other.publish("bad", 1)
    lab.redis.hdel("rqretry:test:{test}:topics", "bad")
    lab.redis.hdel("rqretry:test:{test}:groups", "bad")


async def test_a_damaged_transaction_concerns_its_messages_alone(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    bad, good = client.transaction("orders"), client.transaction("orders")
    half, other = bad.publish(1), good.publish(2)
    key = "rqretry:test:{test}:transactions"
    before = lab.redis.hget(key, bad.id)
    lab.redis.hset(key, bad.id, b"x\xff")
    lab.redis.zadd("rqretry:test:{test}:workers", {b"w\xff": 9e15})

    assert [each.id for each in client.admin.transactions()] == [good.id]
    assert client.admin.message(half).states[0].state == "prepared"
    (problem,) = client.admin.fsck().problems
    assert (problem.kind, problem.id) == ("orphan half", half)
    assert client.admin.stats().topics[0].topic == "orders"
    good.commit()
    assert client.admin.message(other).states[0].state == "ready"
    lab.redis.hset(key, bad.id, before)
    lab.redis.zrem("rqretry:test:{test}:workers", b"w\xff")
    bad.rollback()


async def test_what_a_later_version_has_in_a_transaction_survives(lab: Lab) -> None:
    client = lab.client()
    client.admin.create_topic("orders")
    tx = client.transaction("orders")
    tx.publish(1)
    key = "rqretry:test:{test}:transactions"
    lab.redis.hset(key, tx.id, lab.redis.hget(key, tx.id) + b"\tmore\tstill")
    tx.commit()
    assert lab.redis.hget(key, tx.id).endswith(b"\tmore\tstill")
    assert lab.redis.hget(key, tx.id).startswith(b"committed\t")
