"""A simple consumer whose answers are lost: what it costs, and what it is told."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rqretry import AmbiguousResult, Client, InvalidReceiptHandle, Message, StoreUnavailable
from rqretry.core.parts import parts_of
from tests.contract.integration.harness import NAMESPACE, Lab
from tests.support.faults.proxy import FaultProxy
from tests.support.faults.rules import Fault, Rule

REPLY_S = 0.3
LOST = [Fault.DROP_REPLY, Fault.ONE_WAY]
"""The connection breaks behind the request, or is silent from then on."""


@pytest.fixture
def proxy(lab: Lab) -> Iterator[FaultProxy]:
    """Between a client and the server."""
    with FaultProxy(lab.server) as proxy:
        yield proxy


def far(proxy: FaultProxy) -> Client:
    """A client behind the proxy, which waits a short time for each answer."""
    return Client(f"{proxy.url}&socket_timeout={REPLY_S}", namespace=NAMESPACE)


def all_of(consumer: Any, count: int) -> list[Message[Any]]:
    """So many messages and no more, in 40 calls at most."""
    seen: list[Message[Any]] = []
    for _ in range(40):
        seen += consumer.receive(16, wait=0.1)
        if len(seen) >= count:
            break
    assert len(seen + consumer.receive(16, wait=0)) == count
    return seen


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_receive_whose_answers_are_lost_leases_once_and_says_so(
    lab: Lab, proxy: FaultProxy, partitions: int, fault: Fault
) -> None:
    near = lab.client()
    near.admin.create_topic("t", partitions=partitions)
    with far(proxy) as client:
        consumer = client.simple_consumer("t", group="g", create_group=True)
        near.publish_many("t", range(100))
        consumer.ack(consumer.receive(4, wait=0))
        passed = proxy.passed["lease"]
        proxy.rules = [Rule(fault, "lease", every=1)]
        started = time.monotonic()

        with pytest.raises(AmbiguousResult, match=r"receive may have happened .*delivered again"):
            consumer.receive(4, invisible_duration=1, wait=0)

        assert time.monotonic() - started < 5 * REPLY_S
        assert proxy.passed["lease"] == passed + 1
        proxy.heal()
        assert lab.stats("g").inflight <= 4
        seen = all_of(consumer, 96)
        assert sum(message.attempt > 1 for message in seen) <= 4
        consumer.ack(seen)


def test_what_another_place_gave_is_not_lost_with_an_answer(lab: Lab, proxy: FaultProxy) -> None:
    near = lab.client()
    near.admin.create_topic("t", partitions=4)
    with far(proxy) as client:
        consumer = client.simple_consumer("t", group="g", create_group=True)
        consumer.receive(wait=0)
        near.publish_many("t", range(8))
        before = proxy.seen["lease"]
        proxy.rules = [Rule(Fault.DROP_REPLY, "lease", nth=2)]
        first = consumer.receive(32, invisible_duration=30, wait=0)
        assert 0 < len(first) < 8
        assert proxy.seen["lease"] - before == 2, "nothing was leased after the answer was lost"


def test_a_look_whose_answer_is_lost_takes_nothing_and_says_that(
    lab: Lab, proxy: FaultProxy
) -> None:
    near = lab.client()
    near.admin.create_topic("t", partitions=4)
    with far(proxy) as client:
        consumer = client.simple_consumer("t", group="g", create_group=True)
        near.publish_many("t", range(8))
        proxy.rules = [Rule(Fault.ONE_WAY, "poll", every=1)]
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            consumer.receive(wait=0)
    assert lab.stats("g").ready == 8


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_receive_says_that_the_group_is_paused(
    lab: Lab, partitions: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=partitions)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.publish_many("t", range(8))
    client.admin.pause("g")
    with caplog.at_level(logging.WARNING, "rqretry"):
        assert [consumer.receive(wait=0) for _ in range(3)] == [[], [], []]
    assert parts_of(consumer).operations.paused
    assert [record.getMessage() for record in caplog.records] == [
        "group 'g' is paused: nothing is received until `rqretry group resume g`"
    ]
    client.admin.resume("g")
    assert len(consumer.receive(wait=1)) == 8
    client.admin.pause("g")
    assert consumer.receive(wait=0) == []
    assert caplog.text.count("is paused") == 2


def test_an_empty_group_that_is_paused_is_said_to_be(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    client = lab.client()
    client.admin.create_topic("t", partitions=4)
    consumer = client.simple_consumer("t", group="g", create_group=True)
    client.admin.pause("g")
    assert consumer.receive(wait=0) == []
    assert "group 'g' is paused" in caplog.text


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("partitions", [1, 4])
def test_an_ack_whose_answer_is_lost_refuses_what_was_refused_before_and_nothing_else(
    lab: Lab, proxy: FaultProxy, partitions: int, fault: Fault
) -> None:
    near = lab.client()
    near.admin.create_topic("t", partitions=partitions)
    with far(proxy) as client:
        consumer = client.simple_consumer("t", group="g", create_group=True, max_retries=0)
        near.publish_many("t", range(12))
        consumer.ack(consumer.receive(1, wait=0))  # the server knows the script from now on
        received = [m for _ in range(4) for m in consumer.receive(32, wait=0)]
        near.simple_consumer("t", group="g").change_invisible_duration(received[0], 0)  # dead
        proxy.rules = [Rule(fault, "succeed")]
        with pytest.raises(InvalidReceiptHandle) as refused:
            consumer.ack(received)
    assert [one.id for one in refused.value.refused] == [received[0].id]
    assert (lab.stats("g").dead, lab.stats("g").inflight) == (1, 0)


@pytest.mark.parametrize(
    ("script", "verb"),
    [("change_visibility", "change_invisible_duration"), ("release", "release")],
)
@pytest.mark.parametrize("partitions", [1, 4])
def test_who_gives_back_and_gets_no_answer_hears_that_it_may_have_happened(
    lab: Lab, proxy: FaultProxy, partitions: int, script: str, verb: str
) -> None:
    near = lab.client()
    near.admin.create_topic("t", partitions=partitions)
    with far(proxy) as client:
        consumer = client.simple_consumer("t", group="g", create_group=True)
        near.publish_many("t", range(3))
        known, lost, heard = consumer.receive(3, invisible_duration=60, wait=0)
        ways: dict[str, Callable[[Message[Any]], object]] = {
            "release": consumer.release,
            "change_visibility": lambda message: consumer.change_invisible_duration(message, 0),
        }
        give_back = ways[script]
        give_back(known)  # the server knows the script from now on
        proxy.rules = [Rule(Fault.DROP_REPLY, script)]
        with pytest.raises(AmbiguousResult, match=rf"^{verb} of .*may have happened"):
            give_back(lost)
        proxy.rules = [Rule(Fault.DROP_REQUEST, script)]
        give_back(heard)
    assert len(near.simple_consumer("t", group="g").receive(4, wait=0)) == 3
