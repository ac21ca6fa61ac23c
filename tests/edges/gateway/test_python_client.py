"""The official Python client, unchanged, publishes and consumes through the gateway."""

import threading
import time
from typing import Any

import pytest

from tests.edges.gateway.official import Official


def test_a_message_arrives_as_it_was_sent(official: Official) -> None:
    producer, consumer = official.producer("sent"), official.simple("all", "sent")
    message = official.message("sent", b"hello", tag="a", keys="k1", properties={"x": "y"})
    receipt = producer.send(message)
    (got,) = consumer.receive(16, 30)
    assert (got.body, got.tag, got.keys, got.properties) == (b"hello", "a", {"k1"}, {"x": "y"})
    assert got.message_id == receipt.message_id == message.message_id
    assert len(got.message_id) == 34
    assert (got.delivery_attempt, got.corrupted, got.topic) == (1, False, "sent")
    assert abs(got.born_timestamp / 1000 - time.time()) < 60
    assert got.born_host
    consumer.ack(got)
    consumer.ack(got)  # as if the first answer had been lost
    other = official.simple("all", "sent")
    with pytest.raises(Exception, match=r"40013, .*acknowledged"):
        other.ack(got)


def test_a_poll_that_waits_ends_with_the_first_message(official: Official) -> None:
    producer, consumer = official.producer("woken"), official.simple("all", "woken", wait=20)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(consumer.receive(1, 30)))
    waiting.start()
    started = time.monotonic()
    producer.send(official.message("woken", b"now"))
    waiting.join(15)
    assert time.monotonic() - started < 15
    consumer.ack(got[0])


def test_the_invisible_duration_is_changed_and_every_delivery_counts(official: Official) -> None:
    producer, consumer = official.producer("changed"), official.simple("all", "changed")
    sent = producer.send(official.message("changed", b"again"))
    (first,) = consumer.receive(1, 30)
    before = first.receipt_handle
    consumer.change_invisible_duration(first, 1)
    assert first.receipt_handle != before
    (second,) = consumer.receive(1, 30)
    assert (second.message_id, second.delivery_attempt) == (sent.message_id, 2)
    consumer.ack(second)
