"""A simple consumer on three primaries, one of which answers and is not heard."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rqretry import AmbiguousResult, InvalidReceiptHandle, Message
from rqretry.transport.node import Requests
from rqretry.transport.replies import broken
from rqretry.transport.sync_connection import SyncConnection
from tests.contract.cluster.conftest import ClusterLab
from tests.contract.integration.test_lost_answers import (
    all_of,
    test_a_receive_says_that_the_group_is_paused,
    test_an_empty_group_that_is_paused_is_said_to_be,
)
from tests.support.faults.rules import verb_of

__all__ = [
    "test_a_receive_says_that_the_group_is_paused",
    "test_an_empty_group_that_is_paused_is_said_to_be",
]


class Deaf:
    """Connections that lose the first answer to a script, or each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: Counter[str] = Counter()
        self._monkeypatch = monkeypatch

    @contextmanager
    def to(self, verb: str, times: int) -> Iterator[Counter[str]]:
        """So many answers are lost from here on; yields what is sent."""
        lost: set[SyncConnection] = set()
        sends, receives = SyncConnection.send, SyncConnection.receive
        self.sent.clear()

        def send(connection: SyncConnection, requests: Requests) -> None:
            verbs = [verb_of([str(part).encode() for part in request[:2]]) for request in requests]
            if verb in verbs and self.sent[verb] < times:
                lost.add(connection)
            self.sent.update(verbs)
            sends(connection, requests)

        def receive(connection: SyncConnection, *rest: Any) -> list[Any]:
            replies = receives(connection, *rest)
            if connection in lost:
                lost.discard(connection)
                raise broken(connection.node, ConnectionError("the answer is lost"), sent=True)
            return replies

        with self._monkeypatch.context() as patch:
            patch.setattr(SyncConnection, "send", send)
            patch.setattr(SyncConnection, "receive", receive)
            yield self.sent


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Deaf:
    """Answers that are lost."""
    return Deaf(monkeypatch)


def consuming(lab: ClusterLab, partitions: int, count: int) -> Any:
    """A consumer that has done one of these messages."""
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish_many("t", range(count))
    consumer.ack(consumer.receive(1, wait=0))  # the servers know the scripts from now on
    return consumer


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_receive_whose_answers_are_lost_leases_once_and_says_so(
    lab: ClusterLab, deaf: Deaf, partitions: int
) -> None:
    consumer = consuming(lab, partitions, 100)
    started = time.monotonic()
    with deaf.to("lease", 100) as sent:
        with pytest.raises(AmbiguousResult, match=r"receive may have happened .*delivered again"):
            consumer.receive(4, invisible_duration=1, wait=0)
        assert sent["lease"] == 1
    assert time.monotonic() - started < 2.0
    seen = all_of(consumer, 99)
    assert sum(message.attempt > 1 for message in seen) <= 4
    consumer.ack(seen)


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_ack_whose_answer_is_lost_is_an_ack(
    lab: ClusterLab, deaf: Deaf, partitions: int
) -> None:
    consumer = consuming(lab, partitions, 13)
    messages = [message for _ in range(4) for message in consumer.receive(32, wait=0)]
    assert len(messages) == 12
    with deaf.to("succeed", 1) as sent:
        consumer.ack(messages)
        assert sent["succeed"] > 1
    assert lab.stats("g").inflight == 0
    assert consumer.receive(wait=0) == []


@pytest.mark.parametrize("verb", ["change_visibility", "release"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_who_gives_back_and_gets_no_answer_hears_that_it_may_have_happened(
    lab: ClusterLab, deaf: Deaf, partitions: int, verb: str
) -> None:
    consumer = consuming(lab, partitions, 13)
    ways: dict[str, Callable[[Message[Any]], object]] = {
        "release": consumer.release,
        "change_visibility": lambda message: consumer.change_invisible_duration(message, 0),
    }
    for message in everything(consumer):  # the servers know the script from now on
        ways[verb](message)
    for message in everything(consumer)[::3]:
        with (
            deaf.to(verb, 1) as sent,
            pytest.raises(AmbiguousResult, match=r"(release|duration) of .*may have happened"),
        ):
            ways[verb](message)
        assert sent[verb] == 2
    back = consumer.receive(32, wait=0)
    assert {message.attempt for message in back} == {1 if verb == "release" else 3}
    assert len(back) == 4


@pytest.mark.parametrize("partitions", [1, 4])
def test_who_changes_a_duration_and_gets_no_answer_hears_that_it_may_have_happened(
    lab: ClusterLab, deaf: Deaf, partitions: int
) -> None:
    consumer = consuming(lab, partitions, 13)
    known = everything(consumer)
    handles = [consumer.change_invisible_duration(message, 60) for message in known]
    with deaf.to("change_visibility", 1), pytest.raises(AmbiguousResult, match="may have happened"):
        consumer.change_invisible_duration(handles[0], 50)
    with pytest.raises(InvalidReceiptHandle, match="lease has ended"):
        consumer.ack(handles)
    assert lab.stats("g").inflight == 1


def everything(consumer: Any) -> list[Message[Any]]:
    """All that there is, for a minute."""
    received = consumer.receive(32, invisible_duration=60, wait=0)
    assert len(received) == 12
    return received  # type: ignore[no-any-return]
