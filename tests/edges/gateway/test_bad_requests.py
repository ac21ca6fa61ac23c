"""Whatever is wrong with a call gets the protocol's own code, and changes nothing."""

from typing import Any

import pytest

from rqretry import Client
from rqretry.gateway.protocol import v2
from tests.edges.gateway.raw import Raw, message, named, receive, send


@pytest.fixture
def topic(client: Client) -> str:
    client.admin.create_topic("known")
    client.simple_consumer("known", group="readers", create_group=True)
    return "known"


BAD_MESSAGES: list[tuple[str, dict[str, Any]]] = [
    ("ILLEGAL_TOPIC", {"topic": "no topic"}),
    ("TOPIC_NOT_FOUND", {"topic": "nowhere"}),
    ("ILLEGAL_MESSAGE_ID", {"id_": ""}),
    ("ILLEGAL_MESSAGE_TAG", {"tag": "a|b"}),
    ("ILLEGAL_MESSAGE_KEY", {"keys": ["a b"]}),
    ("ILLEGAL_MESSAGE_GROUP", {"message_group": 64 * "x", "type": "FIFO"}),
    ("MESSAGE_BODY_TOO_LARGE", {"body": bytes(4 * 1024 * 1024 + 1)}),
    ("MESSAGE_CORRUPTED", {"body": b"no gzip", "body_encoding": 2}),
    ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"type": "FIFO"}),
    ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"message_group": "g"}),
    ("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", {"type": "DELAY"}),
    ("ILLEGAL_DELIVERY_TIME", {"type": "DELAY", "deliver_at": 9_999_999_999}),
    ("UNSUPPORTED", {"type": "LITE"}),
]


@pytest.mark.parametrize(("code", "fields"), BAD_MESSAGES)
async def test_a_bad_message_is_refused_with_its_own_code(
    strict: str, topic: str, code: str, fields: dict[str, Any]
) -> None:
    to = {"topic": topic} | fields
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(message(**to))) == code
        assert (await raw.receive(receive("readers", topic)))[0] == "MESSAGE_NOT_FOUND"


async def test_unknown_names_are_not_found_where_nothing_is_created(
    strict: str, topic: str
) -> None:
    async with Raw(strict) as raw:
        assert await raw.code("QueryRoute", named("QueryRouteRequest", topic="nowhere")) == (
            "TOPIC_NOT_FOUND"
        )
        assert (await raw.receive(receive("nobody", topic)))[0] == "CONSUMER_GROUP_NOT_FOUND"
        assert (await raw.receive(receive("no group", topic)))[0] == "ILLEGAL_CONSUMER_GROUP"
        assert (await raw.receive(receive("readers", "nowhere")))[0] == "TOPIC_NOT_FOUND"
        command = v2.TelemetryCommand()
        command.settings.subscription.group.name = "nobody"
        answer = await raw.telemetry(command)
        assert v2.Code.Name(answer.status.code) == "CONSUMER_GROUP_NOT_FOUND"


async def test_a_bad_receive_is_refused(strict: str, topic: str) -> None:
    sql = v2.FilterExpression(type=v2.FilterType.SQL, expression="a > 1")
    many_tags = v2.FilterExpression(type=v2.FilterType.TAG, expression="a |")
    async with Raw(strict) as raw:
        for code, request in [
            ("ILLEGAL_INVISIBLE_TIME", receive("readers", topic, invisible=0)),
            ("ILLEGAL_INVISIBLE_TIME", receive("readers", topic, invisible=12 * 3600 + 1)),
            ("ILLEGAL_POLLING_TIME", receive("readers", topic, wait=3600)),
            ("BAD_REQUEST", receive("readers", topic, batch_size=-1)),
            ("ILLEGAL_FILTER_EXPRESSION", receive("readers", topic, filter_expression=sql)),
            ("ILLEGAL_FILTER_EXPRESSION", receive("readers", topic, filter_expression=many_tags)),
            ("MESSAGE_NOT_FOUND", receive("readers", topic)),
        ]:
            assert (await raw.receive(request))[0] == code


async def test_handles_that_name_no_lease_are_refused(strict: str, topic: str) -> None:
    forged = ["", "x", "known/0/readers/1/01AA", "known/7/readers/1/a", "other/0/readers/1/a",
              "known/0/others/1/a"]  # fmt: skip
    async with Raw(strict) as raw:
        for handle in forged:
            entry = v2.AckMessageEntry(receipt_handle=handle, message_id="m")
            ack = named("AckMessageRequest", "readers", topic, entries=[entry])
            answer = await raw.call("AckMessage", ack)
            codes = {answer.status.code, answer.entries[0].status.code}
            assert codes == {v2.Code.INVALID_RECEIPT_HANDLE}
            change = named(
                "ChangeInvisibleDurationRequest", "readers", topic, receipt_handle=handle
            )
            assert await raw.code("ChangeInvisibleDuration", change) == "INVALID_RECEIPT_HANDLE"


async def test_what_is_not_there_is_unsupported(strict: str, topic: str) -> None:
    async with Raw(strict) as raw:
        for name in ("UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"):
            assert await raw.code(name, getattr(v2, f"{name}Request")()) == "UNSUPPORTED"
        pulled = [part async for part in raw.stream("PullMessage", v2.PullMessageRequest())]
        assert [part.status.code for part in pulled] == [v2.Code.UNSUPPORTED]


async def test_a_transaction_that_nobody_began_is_refused(strict: str, topic: str) -> None:
    end = named("EndTransactionRequest", topic=topic, transaction_id="none", resolution=1)
    async with Raw(strict) as raw:
        assert await raw.code("EndTransaction", end) == "INVALID_TRANSACTION_ID"


async def test_a_call_without_a_client_id_is_refused(strict: str) -> None:
    async with Raw(strict, metadata=()) as raw:
        assert await raw.code("Heartbeat", v2.HeartbeatRequest()) == "CLIENT_ID_REQUIRED"


async def test_fields_of_a_newer_protocol_are_ignored(strict: str, topic: str) -> None:
    made = message(topic, "01" + 32 * "B")
    made.MergeFromString(b"\xfa\x07\x03new")  # field 127
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(made)) == "OK"
        assert (await raw.receive(receive("readers", topic)))[0] == "OK"
