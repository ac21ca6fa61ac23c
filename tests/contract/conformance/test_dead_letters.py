"""Identity and the dead-dead_letter queue."""

from datetime import UTC, datetime, timedelta

import pytest

from rqretry import App, ConsumeResult, InvalidReceiptHandle, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.protocol.inspect import tracebacks
from rqretry.testing import Lab

BEGIN = datetime(2040, 1, 1, tzinfo=UTC)


def failing(lab: Lab, *topics: str, **options: object) -> list[Message[object]]:
    """A consumer of group billing that fails everything; what it was given."""
    app, seen = lab.app(App()), []

    @app.consumer(list(topics) or "orders", group="billing", **options)  # type: ignore[call-overload, untyped-decorator]
    async def bill(message: Message[object]) -> None:
        seen.append(message)
        raise ValueError(f"no {message.attempt % 2}")

    return seen


def test_the_id_and_the_topic_are_the_same_everywhere(lab: Lab) -> None:
    seen = failing(lab, max_retries=1)
    order = lab.publish("orders", 1, id="order-17")
    lab.advance("1m")
    (dead_letter,) = lab.admin.dead_letters("billing")
    assert lab.admin.redrive("billing", all=True) == 1
    lab.run_until_idle()
    assert {m.id for m in seen} == {dead_letter.id} == {order} == {"order-17"}
    assert {m.topic for m in seen} == {dead_letter.topic} == {"orders"}
    assert [m.attempt for m in seen] == [1, 2, 1]


def test_a_group_has_one_dead_letter_queue_for_all_its_topics(lab: Lab) -> None:
    seen = failing(lab, "orders", "returns", max_retries=0)
    app, looked = lab.app(App()), []

    @app.consumer("%DLQ%billing", group="triage")
    async def look(message: Message[int]) -> None:
        looked.append((message.topic, message.id))

    order, back = lab.publish("orders", 1), lab.publish("returns", 2)
    lab.run_until_idle()
    dead_letters = {
        dead_letter.topic: dead_letter.id for dead_letter in lab.admin.dead_letters("billing")
    }
    assert dead_letters == {"orders": order, "returns": back} == dict(looked)
    assert lab.admin.redrive("billing", all=True) == 2
    lab.run_until_idle()
    assert [(m.topic, m.id) for m in seen] == [("orders", order), ("returns", back)] * 2


def test_a_dead_letter_keeps_what_was_published_and_adds_how_it_died(lab: Lab) -> None:
    failing(lab, max_retries=1)
    lab.advance("5s")
    order = lab.publish("orders", {"n": [1, None]}, tag="eu", keys=["k1", "k2"], headers={"h": "v"})
    lab.advance("1m")
    (dead_letter,) = lab.admin.dead_letters("billing")
    assert (dead_letter.id, dead_letter.topic, dead_letter.group) == (order, "orders", "billing")
    assert (dead_letter.body, dead_letter.tag, dead_letter.keys) == (
        {"n": [1, None]},
        "eu",
        ("k1", "k2"),
    )
    assert dead_letter.headers == {"h": "v"}
    begin_ms = round(BEGIN.timestamp() * 1000)
    assert dead_letter.born_ms == begin_ms + 5000
    assert dead_letter.dead_since_ms == begin_ms + 15_000
    assert (dead_letter.deliveries, dead_letter.cause) == (2, "failure")
    assert [(e.attempt, e.at_ms - begin_ms, e.type, e.message) for e in dead_letter.errors] == [
        (1, 5000, "ValueError", "no 1"),
        (2, 15_000, "ValueError", "no 0"),
    ]


def test_the_first_3_and_the_last_16_errors_are_kept_and_one_traceback_of_a_kind(
    lab: Lab,
) -> None:
    failing(lab, policy=RetryPolicy.fixed(1), max_retries=24)
    lab.publish("orders", 1)
    lab.advance("1m")
    (dead_letter,) = lab.admin.dead_letters("billing")
    assert dead_letter.deliveries == 25
    assert [error.attempt for error in dead_letter.errors] == [1, 2, 3, *range(10, 26)]
    assert {error.fingerprint for error in dead_letter.errors} == {dead_letter.fingerprint}
    keys = parts_of(lab.client).catalog.group_keys("orders", 0, "billing")
    size: Command[int] = Command("read", (), (), int, arguments=("HLEN", keys.tracebacks))
    assert parts_of(lab.client).store.run(size) == 1
    (trace,) = parts_of(lab.client).store.run(tracebacks(keys, [dead_letter.fingerprint]))
    assert "ValueError: no 1" in str(trace)


def test_exactly_19_errors_are_all_kept(lab: Lab) -> None:
    failing(lab, policy=RetryPolicy.fixed(1), max_retries=18)
    lab.publish("orders", 1)
    lab.advance("1m")
    (dead_letter,) = lab.admin.dead_letters("billing")
    assert [error.attempt for error in dead_letter.errors] == list(range(1, 20))


def test_time_and_other_groups_take_nothing_out_of_it(lab: Lab) -> None:
    failing(lab, max_retries=0)
    app = lab.app(App())

    @app.consumer("orders", group="fine")
    async def fine(message: Message[int]) -> None: ...

    @app.consumer("%DLQ%billing", group="triage", max_retries=1)
    async def triage(message: Message[int]) -> bool:
        return message.body != 2

    orders = lab.publish_many("orders", [1, 2, 3])
    lab.advance("400d")
    lab.admin.reset("billing")
    lab.admin.delete_group("fine", force=True)
    assert [dead_letter.id for dead_letter in lab.admin.dead_letters("billing")] == orders
    assert lab.admin.dead_letters("triage") == []
    assert lab.admin.redrive("billing", ids=[orders[0]]) == 1
    assert lab.admin.purge("billing", ids=[orders[1]]) == 1
    assert [dead_letter.id for dead_letter in lab.admin.dead_letters("billing")] == orders[2:]


def test_a_redriven_message_starts_again_for_its_group_alone(lab: Lab) -> None:
    lab.admin.create_topic("orders")
    other = lab.client.simple_consumer("orders", group="other", create_group=True)
    mine = lab.client.simple_consumer("orders", group="mine", create_group=True, max_retries=1)
    order = lab.publish("orders", 1)
    other.ack(other.receive(wait=0))
    assert len(mine.receive(invisible_duration="20s", wait=0)) == 1
    lab.advance("20s")
    (old,) = mine.receive(invisible_duration="20s", wait=0)
    lab.advance("20s")
    assert mine.receive(wait=0) == []
    assert lab.admin.redrive("mine", ids=[order]) == 1
    with pytest.raises(InvalidReceiptHandle):
        mine.ack(old)
    (new,) = mine.receive(wait=0)
    with pytest.raises(InvalidReceiptHandle):
        mine.ack(old)
    assert (new.id, new.attempt, new.body) == (order, 1, 1)
    assert new.fencing_token > old.fencing_token
    states = {state.group: state for state in lab.admin.message(order).states}
    assert [error.cause for error in states["mine"].errors] == ["expired", "expired", "redriven"]
    assert other.receive(wait=0) == []
    mine.ack(new)
    assert lab.admin.stats("orders").topics[0].stored == 0


@pytest.mark.parametrize("way", ["delay_level", "delay", "deliver_at", "transaction"])
def test_delayed_and_transactional_messages_retry_like_any_other(lab: Lab, way: str) -> None:
    app = lab.app(App())

    @app.consumer("orders", group="billing", max_retries=3)
    async def bill(message: Message[int]) -> ConsumeResult:
        return ConsumeResult.FAILURE

    lab.run_until_idle()
    if way == "transaction":
        with lab.client.transaction("orders") as tx:
            order = tx.publish(1)
        at = 0
    else:
        date = BEGIN + timedelta(minutes=5)
        options = {"delay_level": 9, "delay": "5m", "deliver_at": date}
        order = lab.publish("orders", 1, **{way: options[way]})  # type: ignore[arg-type]
        at = 300
    lab.advance("1h")
    assert [attempt.at for attempt in lab.attempts(order)] == [at, at + 10, at + 40, at + 100]
    lab.assert_dead(order)
    assert lab.admin.redrive("billing", all=True) == 1
    lab.run_until_idle()
    assert lab.attempts(order)[-1].number == 1
