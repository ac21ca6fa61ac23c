"""A partition with something in every place, and the ways to damage it by hand."""

from collections.abc import Callable
from typing import Any

from rqretry.checks.auditor import ERROR, WARNING
from tests.support.builders import SECOND, failure, prepared
from tests.support.world import START_MS, World

Damage = Callable[[Any, World], object]

DAMAGES: list[tuple[str, Damage, list[tuple[str, str, str, str]]]] = [
    (
        "a message that a group owes and does not have",
        lambda c, w: c.lrem(w.group().ready, 0, "ready"),
        [(ERROR, "not delivered", "pending", "ready")],
    ),
    (
        "a body that no group has",
        lambda c, w: c.hset(w.keys.bodies, "stray", "x"),
        [(ERROR, "orphan body", "bodies", "stray")],
    ),
    (
        "a dead letter without a body",
        lambda c, w: c.hdel(w.keys.bodies, "dead"),
        [
            (ERROR, "missing body", "g:dead", "dead"),
            (ERROR, "missing body", "h:ready", "dead"),
            (ERROR, "missing body", "pending", "dead"),
        ],
    ),
    (
        "a scheduled message without a body",
        lambda c, w: c.hdel(w.keys.bodies, "scheduled"),
        [
            (ERROR, "missing body", "scheduled", "scheduled"),
            (WARNING, "leftover entry", "keyed", "scheduled"),
        ],
    ),
    (
        "a backlog entry without a body",
        lambda c, w: c.rpush(w.keys.backlog, "stray"),
        [(ERROR, "missing body", "backlog", "stray")],
    ),
    (
        "a message in flight and waiting",
        lambda c, w: c.zadd(w.group().inflight, {"waiting": START_MS}),
        [(ERROR, "double booking", "g:delay:3", "waiting")],
    ),
    (
        "a message waiting and dead",
        lambda c, w: (
            c.zadd(w.group().dead, {"waiting": START_MS}),
            c.hset(w.group().deaths, "waiting", "1 failure"),
        ),
        [
            (ERROR, "double booking", "g:delay:3", "waiting"),
            (WARNING, "not indexed", "g:fingerprints", "waiting"),
        ],
    ),
    (
        "a message in flight that is still listed",
        lambda c, w: c.rpush(w.group().ready, "inflight"),
        [(WARNING, "leftover", "g:ready", "inflight")],
    ),
    (
        "a message listed in both lanes",
        lambda c, w: c.rpush(w.group().retry, "ready"),
        [(WARNING, "leftover", "g:retry", "ready")],
    ),
    (
        "a message listed twice in a lane",
        lambda c, w: c.rpush(w.group().ready, "ready"),
        [(WARNING, "leftover", "g:ready", "ready")],
    ),
    (
        "a message that its group has finished with",
        lambda c, w: c.hset(w.keys.pending, "ready", "b"),
        [(WARNING, "leftover", "g:ready", "ready")],
    ),
    (
        "a pending byte of no group",
        lambda c, w: c.hset(w.keys.pending, "ready", "ab\u007f"),
        [(ERROR, "unknown group", "pending", "ready")],
    ),
    (
        "pending groups of a message that is not stored",
        lambda c, w: c.hset(w.keys.pending, "stray", "a"),
        [(ERROR, "missing body", "pending", "stray")],
    ),
    (
        "the size of a body that is not stored",
        lambda c, w: c.hset(w.keys.big, "stray", 9000),
        [(WARNING, "leftover entry", "big", "stray")],
    ),
    (
        "numbers of a message that the group does not have",
        lambda c, w: c.hset(w.group().attempts, "stray", "2:2:0:0"),
        [(WARNING, "leftover entry", "g:attempts", "stray")],
    ),
    (
        "failures of a message that the group does not have",
        lambda c, w: c.hset(w.group().failures, "stray", "1 1 {}"),
        [(WARNING, "leftover entry", "g:failures", "stray")],
    ),
    (
        "a cause of death of a message that is not dead",
        lambda c, w: c.hset(w.group().deaths, "ready", "1 failure"),
        [(WARNING, "leftover entry", "g:graves", "ready")],
    ),
    (
        "a dead letter without a cause",
        lambda c, w: c.hdel(w.group().deaths, "dead"),
        [(WARNING, "no cause", "g:dead", "dead")],
    ),
    (
        "a dead letter that is not counted by its fingerprint",
        lambda c, w: c.delete(w.group().fingerprints),
        [(WARNING, "not indexed", "g:fingerprints", "dead")],
    ),
    (
        "a dead letter that is counted by a fingerprint, and is not there",
        lambda c, w: c.zadd(w.group().fingerprints, {f"0f\0{START_MS:016}\0ready": 0}),
        [(WARNING, "leftover entry", "g:fingerprints", "ready")],
    ),
    (
        "a dead letter that is counted by two fingerprints",
        lambda c, w: c.zadd(w.group().fingerprints, {f"0f\0{START_MS:016}\0dead": 0}),
        [(WARNING, "leftover entry", "g:fingerprints", "dead")],
    ),
    (
        "an index that is later than its level",
        lambda c, w: c.zadd(w.group().due, {"3": START_MS + 10 * SECOND + 1}),
        [(ERROR, "late index", "g:delay:3", "waiting")],
    ),
    (
        "a level that the index does not know",
        lambda c, w: c.delete(w.group().due),
        [(ERROR, "late index", "g:delay:3", "waiting")],
    ),
    (
        "an id to forget that is not remembered",
        lambda c, w: c.zadd(w.keys.id_expiry, {"stray": START_MS}),
        [(WARNING, "leftover entry", "id_expiry", "stray")],
    ),
    (
        "keys of a message that is not stored",
        lambda c, w: (
            c.hset(w.keys.keyed, "stray", "k"),
            c.zadd(w.keys.message_keys, {"k\0stray": 0}),
        ),
        [(WARNING, "leftover entry", "keyed", "stray")],
    ),
    (
        "a key that leads to a message that does not have it",
        lambda c, w: c.zadd(w.keys.message_keys, {"l\0ready": 0, "kk\0scheduled": 0}),
        [
            (WARNING, "leftover entry", "message_keys", "ready"),
            (WARNING, "leftover entry", "message_keys", "scheduled"),
        ],
    ),
    (
        "a message that is not found by its key",
        lambda c, w: c.zrem(w.keys.message_keys, "k\0scheduled"),
        [(WARNING, "not indexed", "message_keys", "scheduled")],
    ),
    (
        "an index that is too early, which is harmless",
        lambda c, w: c.zadd(w.group().due, {"3": START_MS}),
        [],
    ),
]


def busy(world: World) -> World:
    """Two groups; group g has one message in every place."""
    world.subscribe("g")
    world.subscribe("h")
    world.leased("waiting", "dead", "inflight")
    world.fail(failure("waiting"), failure("dead", level=-1))
    world.publish("ready", prepared("scheduled", delay_ms=SECOND, digest="d", keys=("k", "m")))
    return world
