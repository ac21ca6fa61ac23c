"""Simple consumers on a virtual clock."""

from typing import Any

import pytest

from rqretry import App, InvalidArgument, InvalidReceiptHandle, Message
from rqretry.client import SimpleConsumer
from rqretry.testing import Lab


@pytest.fixture
def consumer(lab: Lab) -> SimpleConsumer:
    """Of group audit on topic orders, with three deliveries at most."""
    lab.admin.create_topic("orders")
    return lab.client.simple_consumer("orders", group="audit", create_group=True, max_retries=2)


def received(consumer: SimpleConsumer, **options: Any) -> list[Message[Any]]:
    """What is there now."""
    return consumer.receive(**{"wait": 0, **options})


def test_receive_takes_1_to_32_and_no_more(lab: Lab, consumer: SimpleConsumer) -> None:
    lab.publish_many("orders", range(40))
    assert len(received(consumer, max_messages=1)) == 1
    assert len(received(consumer, max_messages=32)) == 32
    assert len(received(consumer)) == 7
    for number in (0, 33):
        with pytest.raises(InvalidArgument, match="max_messages"):
            received(consumer, max_messages=number)


def test_a_message_is_invisible_for_10_ms_to_12_hours(lab: Lab, consumer: SimpleConsumer) -> None:
    for duration, least_s in (("10ms", 0.01), ("12h", 12 * 3600)):
        lab.publish("orders", duration)
        (first,) = received(consumer, invisible_duration=duration)
        lab.advance(least_s - 0.001)
        assert received(consumer) == []
        lab.advance(0.001)
        (again,) = received(consumer)
        assert (first.attempt, again.attempt) == (1, 2)
        consumer.ack(again)
    for duration in ("9ms", "12h1ms"):
        with pytest.raises(InvalidArgument, match="invisible_duration"):
            received(consumer, invisible_duration=duration)


def test_every_expiry_makes_it_ready_at_once_and_the_last_one_dead(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    order = lab.publish("orders", 1)
    for attempt in (1, 2, 3):
        (message,) = received(consumer, invisible_duration="20s")
        assert (message.id, message.attempt) == (order, attempt)
        lab.advance("19.999s")
        assert received(consumer) == []
        lab.advance("1ms")
    assert received(consumer) == []
    (dead_letter,) = lab.admin.dead_letters("audit")
    assert (dead_letter.id, dead_letter.deliveries, dead_letter.cause) == (order, 3, "expired")
    lab.assert_path(order, "ready " + "inflight ready " * 2 + "inflight dead")


def test_an_ack_is_taken_up_to_the_deadline_and_not_at_it(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    lab.publish_many("orders", [1, 2])
    for late in (False, True):
        (message,) = received(consumer, max_messages=1, invisible_duration="20s")
        lab.advance("20s" if late else "19.999s")
        if late:  # nobody had it since
            with pytest.raises(InvalidReceiptHandle):
                consumer.ack(message)
        else:
            consumer.ack(message)
    assert lab.admin.stats("orders").topics[0].stored == 1


def test_a_change_counts_from_the_call_and_keeps_the_attempt(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    lab.publish("orders", 1)
    (message,) = received(consumer, invisible_duration="20s")
    old = message.receipt_handle
    lab.advance("15s")
    consumer.change_invisible_duration(message, "10s")
    refuses(consumer, old)
    lab.advance("9.999s")
    assert received(consumer) == []
    again = consumer.change_invisible_duration(message, "10s")
    lab.advance("9.999s")
    assert received(consumer) == []
    lab.advance("1ms")
    (second,) = received(consumer, invisible_duration="20s")
    assert second.attempt == 2  # one lease expired, however often it was changed
    refuses(consumer, again)
    consumer.ack(second)
    refuses(consumer, second)


def test_a_change_to_0_makes_it_visible_at_once_and_counts_the_delivery(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    lab.publish("orders", 1)
    (message,) = received(consumer, invisible_duration="20s")
    old = message.receipt_handle
    new = consumer.change_invisible_duration(message, 0)
    (again,) = received(consumer, invisible_duration="20s")
    assert (again.attempt, str(again.last_error)) == (2, "given_back")
    refuses(consumer, old)
    refuses(consumer, new)
    consumer.ack(again)


def test_every_delivery_counts_however_it_ends_and_its_record_has_each(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    order = lab.publish("orders", 1)
    (message,) = received(consumer, invisible_duration="20s")
    consumer.change_invisible_duration(message, 0)
    (message,) = received(consumer, invisible_duration="20s")
    consumer.change_invisible_duration(message, "5s")
    lab.advance("5s")
    (message,) = received(consumer, invisible_duration="20s")
    assert message.attempt == 3
    consumer.change_invisible_duration(message, 0)
    assert received(consumer) == []
    (dead_letter,) = lab.admin.dead_letters("audit")
    assert (dead_letter.id, dead_letter.deliveries, dead_letter.cause) == (order, 3, "given_back")
    causes = [error.cause for error in dead_letter.errors]
    assert causes == ["given_back", "expired", "given_back"]
    assert [step.outcome for step in lab.attempts(order)] == causes
    lab.assert_path(order, "ready inflight ready inflight inflight ready inflight dead")


def test_what_is_released_is_visible_at_once_and_uncounted(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    order = lab.publish("orders", 1)
    limited = lab.client.simple_consumer("orders", group="audit", max_postpones=4)
    for _ in range(4):
        (message,) = received(limited, invisible_duration="20s")
        limited.release(message)
        assert message.remaining() == 0
        refuses(limited, message)
    (message,) = received(limited, invisible_duration="20s")
    assert (message.id, message.attempt) == (order, 1)
    with pytest.raises(InvalidArgument, match=f"{order}.* 4 times .max_postpones"):
        limited.release(message)
    lab.advance("20s")
    with pytest.raises(InvalidReceiptHandle, match="lease has ended"):
        limited.release(message)
    (message,) = received(limited)
    assert message.attempt == 2
    limited.ack(message)
    assert lab.admin.dead_letters("audit") == []


def test_a_lease_that_is_over_cannot_be_changed(lab: Lab, consumer: SimpleConsumer) -> None:
    lab.publish("orders", 1)
    (message,) = received(consumer, invisible_duration="20s")
    lab.advance("20s")  # nobody had it since
    refuses(consumer, message)
    (again,) = received(consumer)
    assert again.attempt == 2


def refuses(consumer: SimpleConsumer, stale: Message[Any] | str) -> None:
    """Neither verb takes this receipt, and nothing is changed."""
    with pytest.raises(InvalidReceiptHandle):
        consumer.ack(stale)
    with pytest.raises(InvalidReceiptHandle):
        consumer.change_invisible_duration(stale, 10)
    with pytest.raises(InvalidReceiptHandle):
        consumer.release(stale)


def test_due_retries_and_new_messages_share_what_is_received(
    lab: Lab, consumer: SimpleConsumer
) -> None:
    lab.publish_many("orders", range(32))
    received(consumer, max_messages=32, invisible_duration="1s")
    lab.advance("1s")
    lab.publish_many("orders", range(32))
    attempts = [m.attempt for _ in range(16) for m in received(consumer, max_messages=2)]
    assert (attempts.count(1), attempts.count(2)) == (16, 16)


def test_a_push_handler_cannot_be_acknowledged_by_hand(lab: Lab, consumer: SimpleConsumer) -> None:
    app, handles = lab.app(App()), []

    @app.consumer("orders", group="billing")
    async def bill(message: Message[int]) -> None:
        handles.append(message.receipt_handle)

    lab.publish("orders", 1)
    lab.run_until_idle()
    with pytest.raises(InvalidReceiptHandle, match="'billing'"):
        consumer.ack(handles[0])
