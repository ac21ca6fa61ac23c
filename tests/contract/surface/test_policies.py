"""RetryPolicy in all its forms, retry_on and dead_letter_on, and what a Message knows of itself."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rqretry import ConsumeResult, Message, RetryPolicy
from tests.contract.integration.harness import Lab, Seen, counted
from tests.contract.surface.harness import working


async def waits(lab: Lab, policy: RetryPolicy, **options: Any) -> tuple[list[float], Seen]:
    """Fail one message until it is dead; answers the seconds between its deliveries."""
    app, seen = lab.app(**options), Seen()

    @app.consumer("t", group="g", policy=policy)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        return ConsumeResult.FAILURE

    async with working(app):
        await app.publish("t", 1)
        await counted(lab, "g", dead=1)
    return [after - before for before, after in itertools.pairwise(seen.at)], seen


@pytest.mark.parametrize(
    ("policy", "options", "expected_ms"),
    [
        (RetryPolicy.ladder("20ms 60ms 120ms", max_retries=4), {}, [20, 60, 120, 120]),
        (RetryPolicy.fixed("40ms", max_retries=3), {}, [40, 40, 40]),
        (RetryPolicy.fixed(timedelta(milliseconds=1), max_retries=0), {}, []),
        (
            RetryPolicy.exponential("20ms", 3, "100ms", jitter=0, max_retries=4),
            {},
            [20, 60, 100, 100],
        ),
        (
            RetryPolicy.rocketmq(max_retries=3),
            {"delay_levels": "1ms 5ms 30ms 60ms 90ms"},
            [30, 60, 90],
        ),
    ],
)
async def test_a_worker_waits_as_the_policy_says(
    lab: Lab, policy: RetryPolicy, options: dict[str, Any], expected_ms: list[int]
) -> None:
    found, seen = await waits(lab, policy, **options)

    assert len(found) == len(expected_ms)
    for wait, expected in zip(found, expected_ms, strict=True):
        assert expected <= wait * 1000 + 5 < expected + 400
    assert seen.attempts == list(range(1, len(expected_ms) + 2))
    assert {message.max_retries for message in seen.messages} == {len(expected_ms)}


async def test_jitter_stays_inside_its_part_of_the_wait(lab: Lab) -> None:
    policy = RetryPolicy.exponential("100ms", 1, "100ms", jitter=0.5, max_retries=1)
    app, due = lab.app(), []
    app.on("failure")(lambda event: due.append(event.next_due_ms))

    @app.consumer("t", group="g", policy=policy)
    async def handle(message: Message[Any]) -> ConsumeResult:
        return ConsumeResult.FAILURE

    async with working(app):
        await app.publish_many("t", range(50))
        await counted(lab, "g", fail=100, dead=50)
        dead_records = await app.admin.dead_letters("g")
    failed = {record.id: [error.at_ms for error in record.errors] for record in dead_records}
    gaps = [second - first for first, second in failed.values()]
    assert min(gaps) >= 45
    assert max(gaps) < 1000
    assert len(set(filter(None, due))) > 10  # chance has a say


class NotFound(LookupError):
    """A failure that another attempt will not mend."""


@pytest.mark.parametrize(
    ("options", "deliveries"),
    [
        ({}, {"value": 2, "lookup": 2, "notfound": 2}),
        ({"retry_on": ValueError}, {"value": 2, "lookup": 1, "notfound": 1}),
        ({"retry_on": [ValueError, NotFound]}, {"value": 2, "lookup": 1, "notfound": 2}),
        ({"dead_letter_on": LookupError}, {"value": 2, "lookup": 1, "notfound": 1}),
        (
            {"retry_on": Exception, "dead_letter_on": (NotFound,)},
            {"value": 2, "lookup": 2, "notfound": 1},
        ),
    ],
)
@pytest.mark.parametrize("sync", [False, True])
async def test_retry_on_and_dead_letter_on_decide_which_errors_are_tried_again(
    lab: Lab, options: dict[str, Any], deliveries: dict[str, int], sync: bool
) -> None:
    app = lab.app()
    errors = {"value": ValueError, "lookup": LookupError, "notfound": NotFound}

    async def handle(message: Message[Any]) -> None:
        raise errors[message.body](message.body)

    def handle_sync(message: Message[Any]) -> None:
        raise errors[message.body](message.body)

    policy = RetryPolicy.fixed("1ms", max_retries=1)
    register = app.consumer("t", group="g", policy=policy, **options)
    register(handle_sync if sync else handle)
    async with working(app):
        await app.publish_many("t", list(errors))
        await counted(lab, "g", dead=3)
        dead_records = await app.admin.dead_letters("g")

    assert {record.body: record.attempt for record in dead_records} == deliveries
    for record in dead_records:
        expected = "failure" if record.attempt == 2 else "rejected"
        assert (record.cause, record.error) == (
            expected,
            f"{errors[record.body].__name__}: {record.body}",
        )


async def test_a_message_knows_what_the_contract_names(lab: Lab) -> None:
    app, seen = lab.app(), Seen()
    policy = RetryPolicy.fixed("1ms", max_retries=2)

    @app.consumer("t", group="g", policy=policy, visibility=20)
    async def handle(message: Message[Any]) -> ConsumeResult:
        seen.add(message)
        assert 19 < message.remaining() <= 20
        left = (message.deadline - datetime.now(UTC)).total_seconds()
        assert 18 < left <= 20
        return ConsumeResult.FAILURE if message.attempt < 3 else ConsumeResult.SUCCESS

    async with working(app):
        id_ = await app.publish("t", {"a": 1}, tag="x", keys=["k1", "k2"], headers={"h": "1"})
        await counted(lab, "g", succeed=1, fail=2)

    for number, message in enumerate(seen.messages, 1):
        assert (message.id, message.topic, message.group) == (id_, "t", "g")
        assert (message.body, message.tag, message.keys) == ({"a": 1}, "x", ("k1", "k2"))
        assert dict(message.headers) == {"h": "1"}
        assert (message.attempt, message.reconsume_times) == (number, number - 1)
        assert (message.max_retries, message.message_group, message.cancelled) == (2, None, False)
        assert message.published_at is not None
        assert abs((datetime.now(UTC) - message.published_at).total_seconds()) < 60
    tokens = [message.fencing_token for message in seen.messages]
    assert tokens == sorted(set(tokens))
    assert len({message.receipt_handle for message in seen.messages}) == 3
