"""Deliveries call by call: ids, attempts of push groups, and what clients that leave had."""

import asyncio
from typing import Any

import pytest

from rqretry import App, Client, Message, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.gateway.protocol import v2
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.conftest import serving
from tests.edges.gateway.raw import METADATA, Raw, message, named, receive, send


def lease_of(found: Any, group: str) -> dict[str, Any]:
    handle = found.system_properties.receipt_handle
    return {"group": group, "topic": found.topic.name, "receipt_handle": handle}


def grouped(client: Client, group: str, topic: str, **settings: Any) -> None:
    """A group as a Python worker makes it at its start."""
    client.admin.create_topic(topic)
    parts_of(client).store.perform(
        parts_of(client).catalog.join(group, "push", [topic], **settings)
    )


async def settings_of(raw: Raw, group: str) -> Any:
    command = v2.TelemetryCommand()
    command.settings.client_type = v2.ClientType.PUSH_CONSUMER
    command.settings.subscription.group.name = group
    return (await raw.telemetry(command)).settings


async def test_what_is_sent_twice_is_stored_once_and_keeps_its_id(lenient: str) -> None:
    made = message("twice", "01" + 32 * "1", born_host="first")
    async with Raw(lenient) as raw:
        for seconds in (1, 2):  # a client that repeats names another born time
            made.system_properties.born_timestamp.seconds = seconds
            answer = await raw.call("SendMessage", send(made))
            assert [entry.message_id for entry in answer.entries] == ["01" + 32 * "1"]
        code, found = await raw.receive(receive("all", "twice", batch_size=16, invisible=1))
        assert (code, len(found)) == ("OK", 1)
        _, (again,) = await raw.receive(receive("all", "twice", wait=10))
        first, second = found[0].system_properties, again.system_properties
        assert first.message_id == second.message_id == "01" + 32 * "1"
        assert (first.delivery_attempt, second.delivery_attempt) == (1, 2)


async def test_a_batch_has_a_result_for_each_message(lenient: str) -> None:
    ids = [f"01{number:032X}" for number in range(3)]
    async with Raw(lenient) as raw:
        answer = await raw.call("SendMessage", send(*(message("batch", id_) for id_ in ids)))
        assert [entry.message_id for entry in answer.entries] == ids
        _, found = await raw.receive(receive("all", "batch", batch_size=16))
        assert {one.system_properties.message_id for one in found} == set(ids)
        handles = [one.system_properties.receipt_handle for one in found]
        entries = [v2.AckMessageEntry(receipt_handle=text) for text in (*handles, "forged")]
        answer = await raw.call(
            "AckMessage", named("AckMessageRequest", "all", "batch", entries=entries)
        )
        assert v2.Code.Name(answer.status.code) == "MULTIPLE_RESULTS"
        codes = [v2.Code.Name(entry.status.code) for entry in answer.entries]
        assert codes == ["OK", "OK", "OK", "INVALID_RECEIPT_HANDLE"]


async def test_a_change_in_a_push_group_is_a_failed_attempt(strict: str, client: Client) -> None:
    policy = RetryPolicy.ladder("1500ms 1h")
    grouped(client, "settled", "failing", policy=policy, max_retries=1)
    async with Raw(strict) as raw:
        settings = await settings_of(raw, "settled")
        waits = [w.seconds + w.nanos / 1e9 for w in settings.backoff_policy.customized_backoff.next]
        assert (settings.backoff_policy.max_attempts, waits) == (2, [1.5, 3600.0])
        assert not settings.subscription.fifo
        await raw.call("SendMessage", send(message("failing", "01" + 32 * "2")))
        taken = receive("settled", "failing", auto_renew=True)
        _, (found,) = await raw.receive(taken)
        change = named("ChangeInvisibleDurationRequest", **lease_of(found, "settled"))
        change.invisible_duration.seconds = 1  # as a client reads 1.5 s
        for _ in range(2):  # the second one as if the answer had been lost
            assert await raw.code("ChangeInvisibleDuration", change) == "OK"
        taken.long_polling_timeout.seconds = 10
        _, (found,) = await raw.receive(taken)
        assert found.system_properties.delivery_attempt == 2
        change.receipt_handle = found.system_properties.receipt_handle
        assert await raw.code("ChangeInvisibleDuration", change) == "OK"
    (dead,) = client.admin.dead_letters("settled")
    assert (dead.attempt, dead.cause) == (2, "failure")
    events = [event for event in client.admin.timeline(dead.id) if event.group == "settled"]
    assert [event.event for event in events] == ["lease", "fail", "promote", "lease", "fail"]
    assert events[1].due_ms is not None
    assert events[1].due_ms - events[1].at_ms == pytest.approx(1500, abs=20)
    assert events[1].worker == METADATA[0][1]


async def test_a_client_that_knows_no_tables_waits_by_the_groups_policy(
    strict: str, client: Client
) -> None:
    grouped(client, "tableless", "tables", policy=RetryPolicy.ladder("1h"))
    async with Raw(strict) as raw:
        await raw.call("SendMessage", send(message("tables", "01" + 32 * "7")))
        _, (found,) = await raw.receive(receive("tableless", "tables", auto_renew=True))
        change = named("ChangeInvisibleDurationRequest", **lease_of(found, "tableless"))
        assert await raw.code("ChangeInvisibleDuration", change) == "OK"
    failed = client.admin.timeline("01" + 32 * "7")[-1]
    assert (failed.event, failed.attempt) == ("fail", 1)
    assert failed.due_ms is not None
    assert failed.due_ms - failed.at_ms == 3_600_000


async def test_attempts_of_a_client_and_of_a_python_worker_count_together(
    strict: str, client: Client, redis_server: EmbeddedRedis
) -> None:
    app, seen = App(redis_server.url), list[int]()

    @app.consumer("both", group="both", policy=RetryPolicy.fixed("50ms", max_retries=1))
    async def handle(message: Message[Any]) -> None:
        seen.append(message.attempt)
        raise ValueError("no")

    grouped(client, "both", "both", policy=RetryPolicy.fixed("50ms"), max_retries=1)
    async with Raw(strict) as raw:
        await raw.call("SendMessage", send(message("both", "01" + 32 * "8")))
        _, (found,) = await raw.receive(receive("both", "both", auto_renew=True))
        change = named("ChangeInvisibleDurationRequest", **lease_of(found, "both"))
        assert await raw.code("ChangeInvisibleDuration", change) == "OK"
    working = asyncio.create_task(app.run(signals=False))
    for _ in range(500):
        if client.admin.dead_letters("both"):
            break
        await asyncio.sleep(0.02)
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    (dead,) = client.admin.dead_letters("both")
    first, second = dead.errors
    assert (dead.attempt, seen) == (2, [2])
    assert first.message == f"client {METADATA[0][1]} reported a failure"
    assert (second.type, second.message) == ("ValueError", "no")


async def test_a_push_consumer_whose_heartbeat_says_simple_stays_one(
    strict: str, client: Client
) -> None:
    grouped(client, "beating", "beats")
    async with Raw(strict) as raw:
        await settings_of(raw, "beating")
        beat = named("HeartbeatRequest", "beating", client_type=v2.ClientType.SIMPLE_CONSUMER)
        assert await raw.code("Heartbeat", beat) == "OK"
        await raw.call("SendMessage", send(message("beats", "01" + 32 * "9")))
        code, _ = await raw.receive(receive("beating", "beats", auto_renew=True))
    assert code == "OK"


async def test_a_nodejs_client_gets_its_settings_again(strict: str) -> None:
    command = v2.TelemetryCommand()
    command.settings.client_type = v2.ClientType.PRODUCER
    command.settings.publishing.topics.add(name="repeated")
    command.settings.user_agent.language = v2.Language.NODE_JS
    async with Raw(strict) as raw:
        again = await raw.telemetry(command, answers=2)
    assert [topic.name for topic in again.settings.publishing.topics] == ["repeated"]


async def test_what_an_ordered_client_forwards_is_a_failed_attempt(
    strict: str, client: Client
) -> None:
    policy = RetryPolicy.fixed(0.05)
    grouped(client, "rows", "ordered", ordered=True, policy=policy, max_retries=1)
    async with Raw(strict) as raw:
        settings = await settings_of(raw, "rows")
        assert (settings.subscription.fifo, settings.backoff_policy.max_attempts) == (True, 1)
        made = message("ordered", "01" + 32 * "3", type="FIFO", message_group="one")
        await raw.call("SendMessage", send(made))
        for attempt in (1, 2):
            assert client.admin.dead_letters("rows") == []
            taken = receive("rows", "ordered", auto_renew=True, wait=10)
            _, (found,) = await raw.receive(taken)
            assert found.system_properties.delivery_attempt == attempt
            forward = named(
                "ForwardMessageToDeadLetterQueueRequest",
                max_delivery_attempts=1,
                **lease_of(found, "rows"),
            )
            assert await raw.code("ForwardMessageToDeadLetterQueue", forward) == "OK"
    (dead,) = client.admin.dead_letters("rows")
    assert (dead.attempt, dead.cause) == (2, "failure")


async def test_what_a_client_had_when_it_said_goodbye_comes_again_uncounted(lenient: str) -> None:
    taken = receive("pushed", "bye", auto_renew=True)
    async with Raw(lenient) as raw:
        assert (await raw.receive(taken))[0] == "MESSAGE_NOT_FOUND"
        await raw.call("SendMessage", send(message("bye", "01" + 32 * "4")))
        for _ in range(3):
            code, (found,) = await raw.receive(taken)
            assert (code, found.system_properties.delivery_attempt) == ("OK", 1)
            goodbye = v2.NotifyClientTerminationRequest()
            assert await raw.code("NotifyClientTermination", goodbye) == "OK"
        _, (found,) = await raw.receive(taken)
        forward = named("ForwardMessageToDeadLetterQueueRequest", **lease_of(found, "pushed"))
        assert await raw.code("ForwardMessageToDeadLetterQueue", forward) == "OK"
        assert await raw.code("ForwardMessageToDeadLetterQueue", forward) == "OK"  # repeated


async def test_what_a_client_repeats_is_answered_as_the_first_time(
    strict: str, client: Client, redis_server: EmbeddedRedis
) -> None:
    client.admin.create_topic("repeated")
    client.simple_consumer("repeated", group="again", create_group=True)
    other = (("x-mq-client-id", "raw@2@0@test"),)
    async with Raw(strict) as raw, Raw(strict, metadata=other) as stranger:
        await raw.call("SendMessage", send(message("repeated", "01" + 32 * "5")))
        _, (found,) = await raw.receive(receive("again", "repeated"))
        first = lease_of(found, "again")
        change = named("ChangeInvisibleDurationRequest", **first)
        change.invisible_duration.seconds = 20
        moved = [await raw.call("ChangeInvisibleDuration", change) for _ in range(2)]
        assert {v2.Code.Name(one.status.code) for one in moved} == {"OK"}
        (handle,) = {one.receipt_handle for one in moved}
        assert handle != first["receipt_handle"]
        assert await stranger.code("ChangeInvisibleDuration", change) == "INVALID_RECEIPT_HANDLE"
        ack = named("AckMessageRequest", "again", "repeated")
        ack.entries.add(receipt_handle=handle)
        async with serving(redis_server.url, create=False) as second, Raw(second) as elsewhere:
            answers = [await one.code("AckMessage", ack) for one in (raw, raw, elsewhere, stranger)]
        assert answers == ["OK", "OK", "OK", "INVALID_RECEIPT_HANDLE"]
        assert await raw.code("ChangeInvisibleDuration", change) == "INVALID_RECEIPT_HANDLE"
    events = [one.event for one in client.admin.timeline("01" + 32 * "5") if one.group]
    assert events == ["lease", "change", "succeed"]


async def test_acks_that_come_together_have_answers_of_their_own(lenient: str) -> None:
    ids = [f"06{number:032X}" for number in range(20)]
    async with Raw(lenient) as raw:
        await raw.call("SendMessage", send(*(message("together", id_) for id_ in ids)))
        _, found = await raw.receive(receive("all", "together", batch_size=20))
        acks = []
        for one in found:
            ack = named("AckMessageRequest", "all", "together")
            ack.entries.add(receipt_handle=one.system_properties.receipt_handle)
            acks.append(ack)
        acks[7].entries[0].receipt_handle = "together/0/all/1/forged"
        codes = await asyncio.gather(*(raw.code("AckMessage", ack) for ack in acks))
    assert codes.index("INVALID_RECEIPT_HANDLE") == 7
    assert codes.count("OK") == 19
