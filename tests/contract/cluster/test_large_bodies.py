"""Bodies over 64 KiB while the slot of their partition moves to another primary.

A publish writes such a body in one transaction with its script; who has leased it reads it later.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.crc import key_slot

from rqretry import Client, Message
from rqretry.consumer import simple_operations
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Leased, with_large
from rqretry.transport.node import Requests
from rqretry.transport.sync_connection import SyncConnection
from rqretry.worker import fetch
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.harness import NAMESPACE, PATIENCE_S, Seen, counted
from tests.support.fleets import Cluster, until

KEYS = partition_keys(NAMESPACE, "t", 0)
SLOT = key_slot(KEYS.meta.encode())
STEPS = {"MULTI": 0, "HSETNX incoming": 1, "HSETNX bodies": 2, "the script": 3}
"""What the server has of a transaction when the slot moves, and how many commands it has queued."""
ARRIVED = ("none", "half", "all", "over")
"""How many of the slot's keys the other server has by then; "over": and the slot is its own."""


class Move:
    """The slot on its way to another primary; it waits where it is told until `finish`."""

    def __init__(self, cluster: Cluster) -> None:
        self.source = cluster.server_of(KEYS.meta)
        self._cluster = cluster
        self._target = next(s for s in cluster.primaries if s is not self.source)
        self._reached, self._onward = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._left = 0

    def begin(self, arrived: str) -> None:
        """Move so many of the keys."""
        keys = self._keys()
        assert keys > 3
        if arrived == "none":
            self._announce()
            return
        self._left = keys // 2 if arrived == "half" else 0
        if arrived == "over":
            self._onward.set()
        self._thread.start()
        assert self._reached.wait(PATIENCE_S)
        if arrived == "over":
            self._thread.join()

    def finish(self) -> None:
        """Move the rest, and the slot."""
        self._onward.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _announce(self) -> None:
        source_id, target_id = (s.call("CLUSTER", "MYID") for s in (self.source, self._target))
        self._target.call("CLUSTER", "SETSLOT", SLOT, "IMPORTING", source_id)
        self.source.call("CLUSTER", "SETSLOT", SLOT, "MIGRATING", target_id)

    def _run(self) -> None:
        self._cluster.move(SLOT, self._target, self._pause)

    def _pause(self) -> None:
        if self._keys() <= self._left:
            self._reached.set()
            assert self._onward.wait(PATIENCE_S)

    def _keys(self) -> int:
        keys: int = self.source.call("CLUSTER", "COUNTKEYSINSLOT", SLOT)
        return keys


@pytest.fixture
def move(lab: ClusterLab) -> Iterator[Move]:
    """A move of partition 0 of "t", which is over at the end."""
    move = Move(lab.cluster)
    yield move
    move.finish()


@contextmanager
def moving_within_transaction(
    step: str, move: Move, arrived: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Requests]]:
    """The slot moves when the server has the first transaction up to a step.

    It is over when a transaction is sent for the third time. Yields what was sent of them.
    """
    sends = SyncConnection.send
    sent: list[Requests] = []

    def send(connection: SyncConnection, requests: Requests) -> None:
        if ("MULTI",) in requests:
            sent.append(requests)
            if len(sent) == 1:
                behind = requests.index(("MULTI",)) + 1 + STEPS[step]
                sends(connection, requests[:behind])
                requests = requests[behind:]
                queued = f" multi={STEPS[step]} ".encode()
                until(lambda: queued in move.source.call("CLIENT", "LIST"))
                move.begin(arrived)
            elif len(sent) == 3:
                move.finish()
        sends(connection, requests)

    with monkeypatch.context() as patch:
        patch.setattr(SyncConnection, "send", send)
        yield sent


def moving_before_it_is_read(
    module: Any, move: Move, arrived: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot moves when the first large body is leased, and is over when that was read."""
    begun: list[Leased] = []

    def read(keys: Any, leased: Leased) -> Operation[Leased]:
        if all(leased.data) or begun:
            return (yield from with_large(keys, leased))
        begun.append(leased)
        move.begin(arrived)
        complete = yield from with_large(keys, leased)
        move.finish()
        return complete

    monkeypatch.setattr(module, "with_large", read)


def publish(client: Client, body: bytes) -> None:
    """One call."""
    client.publish("t", body)


def prepare(client: Client, body: bytes) -> None:
    """A transaction of one message."""
    with client.transaction("t") as transaction:
        transaction.publish(body)


def used(lab: ClusterLab) -> Any:
    """A consumer of a topic that was used, so that servers know its scripts and have its keys."""
    client = lab.client()
    client.admin.create_topic("t")
    consumer = client.simple_consumer("t", group="g", create_group=True)
    for act in (publish, prepare):
        act(client, os.urandom(70_000))
        consumer.ack(consumer.receive(wait=0))
    client.publish("t", b"small")
    return consumer


def assert_nothing_left(lab: ClusterLab, move: Move) -> None:
    """No server has a body, or has noted one, and the first one has no key."""
    for key in (KEYS.bodies, KEYS.big, KEYS.incoming):
        assert not lab.redis.exists(key)
    assert move.source.call("CLUSTER", "COUNTKEYSINSLOT", SLOT) == 0


@pytest.mark.parametrize("arrived", ARRIVED)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", [publish, prepare])
def test_a_slot_moves_within_the_transaction_of_a_large_body(
    lab: ClusterLab,
    move: Move,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[Client, bytes], None],
    step: str,
    arrived: str,
) -> None:
    consumer, body = used(lab), os.urandom(100_000)
    with moving_within_transaction(step, move, arrived, monkeypatch) as sent:
        act(lab.client(), body)
    assert len(sent) > 1
    if arrived in ("all", "over"):  # with a part of the keys the first server may say TRYAGAIN
        assert (("ASKING",) in sent[1]) == (arrived == "all")

    messages = consumer.receive(32, wait=1)
    assert [message.body for message in messages] == [b"small", body]
    consumer.ack(messages)
    assert_nothing_left(lab, move)


@pytest.mark.parametrize("arrived", ARRIVED)
def test_a_slot_moves_before_a_leased_body_is_read(
    lab: ClusterLab, move: Move, monkeypatch: pytest.MonkeyPatch, arrived: str
) -> None:
    consumer, bodies = used(lab), [os.urandom(100_000) for _ in range(3)]
    lab.client().publish_many("t", bodies)
    moving_before_it_is_read(simple_operations, move, arrived, monkeypatch)
    messages = consumer.receive(32, wait=0)
    assert [message.body for message in messages] == [b"small", *bodies]
    assert {message.attempt for message in messages} == {1}
    consumer.ack(messages)
    assert_nothing_left(lab, move)


@pytest.mark.parametrize("arrived", ARRIVED)
async def test_a_slot_moves_before_a_worker_reads_what_it_has_leased(
    lab: ClusterLab, move: Move, monkeypatch: pytest.MonkeyPatch, arrived: str
) -> None:
    app, seen = lab.app(), Seen()

    @app.consumer("t", group="g")
    async def handle(message: Message[Any]) -> None:
        seen.add(message)

    body = os.urandom(100_000)
    moving_before_it_is_read(fetch, move, arrived, monkeypatch)
    async with lab.working(app):
        await app.publish("t", b"small")
        await seen.count(1)
        await app.publish("t", body)
        await seen.count(2)  # what counts holds up the loop, and so the move
        await counted(lab, "g", succeed=2)
    assert seen.bodies == [b"small", body]
    assert seen.attempts == [1, 1]
    assert_nothing_left(lab, move)
