"""Delays, recalls, filters by tag, order and transactions of the official client."""

import threading
import time
from types import ModuleType
from typing import Any

import pytest

from tests.edges.gateway.official import Official


def test_a_delayed_message_comes_at_its_time_and_can_be_recalled(official: Official) -> None:
    producer, consumer = official.producer("later"), official.simple("all", "later", wait=10)
    now = int(time.time())
    soon = official.message("later", b"soon", delivery_timestamp=now + 2)
    never = official.message("later", b"never", delivery_timestamp=now + 4)
    producer.send(soon)
    receipt = producer.send(never)
    assert producer.recall_message("later", receipt.recall_handle) == receipt.message_id
    (got,) = consumer.receive(16, 30)
    assert (got.body, got.message_type) == (b"soon", 3)
    assert time.time() >= now + 2
    assert got.delivery_timestamp == 1000 * (now + 2)
    consumer.ack(got)
    with pytest.raises(Exception, match="40400"):
        producer.recall_message("later", "01" + 32 * "0")


def test_a_consumer_gets_the_tags_that_it_names(official: Official) -> None:
    producer = official.producer("tagged")
    consumer = official.simple("some", "tagged", "a || c")
    waiting: list[Any] = []
    receiving = threading.Thread(target=lambda: waiting.extend(consumer.receive(16, 30)))
    receiving.start()
    receiving.join(1.5)  # it is subscribed with these tags
    for tag in ("b", "a"):
        producer.send(official.message("tagged", tag.encode(), tag=tag))
    receiving.join(10)
    assert [message.body for message in waiting] == [b"a"]


@pytest.mark.parametrize(("verb", "bodies"), [("commit", [b"half"]), ("rollback", [])])
def test_a_transaction_is_committed_or_rolled_back(
    official: Official, verb: str, bodies: list[bytes]
) -> None:
    topic = f"halves-{verb}"
    producer = official.producer(topic, checker=checker(official.library, []))
    consumer = official.simple("all", topic, wait=1)
    transaction = producer.begin_transaction()
    producer.send(official.message(topic, b"half"), transaction)
    assert consumer.receive(16, 30) == []
    getattr(transaction, verb)()
    assert [message.body for message in consumer.receive(16, 30)] == bodies


def test_a_producer_is_asked_about_a_transaction_that_it_left(official: Official) -> None:
    asked: list[bytes] = []
    producer = official.producer("orphans", checker=checker(official.library, asked))
    consumer = official.simple("all", "orphans", wait=20)
    producer.send(official.message("orphans", b"left"), producer.begin_transaction())
    assert [message.body for message in consumer.receive(16, 30)] == [b"left"]
    assert asked == [b"left"]


def checker(library: ModuleType, asked: list[bytes]) -> Any:
    class Checker(library.TransactionChecker):  # type: ignore[misc,name-defined]
        def check(self, message: Any) -> Any:
            asked.append(message.body)
            return library.TransactionResolution.COMMIT

    return Checker()
