"""Call by call: odd values, each answered in time with its own code, and none in the log."""

import gzip
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.gateway.protocol import SERVICE, service, v2
from tests.edges.gateway.raw import METADATA, Raw, message, named, receive, send

LONGEST, SHORTEST = 2**63 - 1, -(2**63)
NAMES = ("a" * 256, "ünï", "../x", "a/b", "a\0b", "%RETRY%x", "%DLQ%", "%DLQ%../x", "{known}")
TRANSACTION = "0E" + 32 * "F"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No call leaves an error in the log."""
    yield
    errors = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.ERROR]
    assert errors == []


@pytest.fixture
def topic(client: Client) -> str:
    for name in ("odd", "odd-other"):
        client.admin.create_topic(name)
    client.simple_consumer("odd", group="odd-readers", create_group=True)
    parts = parts_of(client)
    parts.store.perform(parts.catalog.join("odd-pushers", "push", ["odd"]))
    return "odd"


@pytest.mark.parametrize("name", NAMES)
async def test_an_odd_name_is_illegal_in_each_call(strict: str, topic: str, name: str) -> None:
    no_topic, no_group = {"ILLEGAL_TOPIC"}, {"ILLEGAL_CONSUMER_GROUP"}
    async with Raw(strict) as raw:
        assert no_topic == {
            await raw.code("QueryRoute", named("QueryRouteRequest", topic=name)),
            await raw.code("QueryAssignment", named("QueryAssignmentRequest", "odd-readers", name)),
            await raw.code("SendMessage", send(message(name))),
            (await raw.receive(receive("odd-readers", name)))[0],
            await raw.code("AckMessage", named("AckMessageRequest", "odd-readers", name)),
            await raw.code("RecallMessage", named("RecallMessageRequest", topic=name)),
            await raw.code("EndTransaction", named("EndTransactionRequest", topic=name)),
        }
        assert no_group == {
            await raw.code("QueryAssignment", named("QueryAssignmentRequest", name, topic)),
            await raw.code("Heartbeat", named("HeartbeatRequest", name)),
            (await raw.receive(receive(name, topic)))[0],
            await raw.code("AckMessage", named("AckMessageRequest", name, topic)),
        }
        end = named("EndTransactionRequest", topic=topic, transaction_id=name, resolution=1)
        assert await raw.code("EndTransaction", end) == "INVALID_TRANSACTION_ID"
        recall = named("RecallMessageRequest", topic=topic, recall_handle=name)
        assert await raw.code("RecallMessage", recall) == "BAD_REQUEST"


RECEIVES: list[tuple[str, dict[str, Any]]] = [
    ("BAD_REQUEST", {"batch_size": 0}),
    ("BAD_REQUEST", {"batch_size": -(2**31)}),
    ("MESSAGE_NOT_FOUND", {"batch_size": 10**9}),
    ("ILLEGAL_INVISIBLE_TIME", {"invisible": -1}),
    ("ILLEGAL_INVISIBLE_TIME", {"invisible": 13 * 3600}),
    ("ILLEGAL_INVISIBLE_TIME", {"invisible": LONGEST}),
    ("ILLEGAL_INVISIBLE_TIME", {"invisible": SHORTEST}),
    ("ILLEGAL_POLLING_TIME", {"wait": -1}),
    ("ILLEGAL_POLLING_TIME", {"wait": LONGEST}),
    ("ILLEGAL_FILTER_EXPRESSION", {"filter_expression": {"type": 99, "expression": "*"}}),
    ("ILLEGAL_FILTER_EXPRESSION", {"filter_expression": {"type": 1, "expression": 200_000 * "a"}}),
    ("ILLEGAL_FILTER_EXPRESSION", {"filter_expression": {"type": 1, "expression": "a\0"}}),
    ("FORBIDDEN", {"auto_renew": True}),
]


@pytest.mark.parametrize(("code", "fields"), RECEIVES)
async def test_an_odd_receive(strict: str, topic: str, code: str, fields: dict[str, Any]) -> None:
    async with Raw(strict) as raw:
        assert (await raw.receive(receive("odd-readers", topic, **fields)))[0] == code


SENT = message("odd", "04" + 32 * "F")
SENDS: list[tuple[str, list[dict[str, Any]]]] = [
    ("BAD_REQUEST", []),
    ("BAD_REQUEST", [{} for _ in range(1025)]),
    ("BAD_REQUEST", [{}, {"topic": "odd-other"}]),
    ("BAD_REQUEST", [{"type": "TRANSACTION"}, {"id_": "m2"}]),
    ("MESSAGE_PROPERTIES_TOO_LARGE", [{"properties": {"a": 200_000 * "x"}}]),
    ("MESSAGE_PROPERTIES_TOO_LARGE", [{"properties": {f"p{n}": "x" for n in range(129)}}]),
    ("MESSAGE_PROPERTIES_TOO_LARGE", [{"born_host": 20_000 * "h"}]),
    ("ILLEGAL_MESSAGE_PROPERTY_KEY", [{"properties": {"": "x"}}]),
    ("ILLEGAL_MESSAGE_PROPERTY_KEY", [{"properties": {"a b": "x"}}]),
    ("MESSAGE_BODY_TOO_LARGE", [{}, {"id_": "m2", "body": bytes(4 * 1024 * 1024 + 1)}]),
    ("MESSAGE_BODY_TOO_LARGE", [{"body": gzip.compress(bytes(2**23)), "body_encoding": 2}]),
    ("MESSAGE_CORRUPTED", [{"body": gzip.compress(b"cut")[:-9], "body_encoding": 2}]),
    ("MESSAGE_CORRUPTED", [{"body": gzip.compress(b"more") + b"x", "body_encoding": 2}]),
    ("MESSAGE_CORRUPTED", [{"body": b"", "body_encoding": 2}]),
    ("UNSUPPORTED", [{"body_encoding": 99}]),
    ("UNSUPPORTED", [{"message_type": 99}]),
    ("ILLEGAL_MESSAGE_ID", [{"id_": "a" * 129}]),
    ("ILLEGAL_MESSAGE_ID", [{"id_": "a\0b"}]),
    ("ILLEGAL_MESSAGE_ID", [{"id_": "m1"}, {"id_": "m1", "body": b"else"}]),
    ("ILLEGAL_MESSAGE_ID", [{"id_": SENT.system_properties.message_id, "body": b"else"}]),
    ("ILLEGAL_MESSAGE_GROUP", [{"message_group": "a\0", "type": "FIFO"}]),
    ("ILLEGAL_DELIVERY_TIME", [{"type": "DELAY", "deliver_at": LONGEST}]),
    ("ILLEGAL_DELIVERY_TIME", [{"type": "DELAY", "deliver_at": SHORTEST}]),
    ("ILLEGAL_DELIVERY_TIME", [{"type": "DELAY", "deliver_at": 4_950_000_000}]),
    ("ILLEGAL_DELIVERY_TIME", [{}, {"id_": "m2", "type": "DELAY", "deliver_at": LONGEST}]),
    ("BAD_REQUEST", [{"type": "TRANSACTION", "check_after": -1}]),
    ("BAD_REQUEST", [{"type": "TRANSACTION", "check_after": LONGEST}]),
]


def stored(client: Client) -> tuple[int, int]:
    """How many bodies and undecided transactions there are."""
    found = client.admin.stats()
    return sum(topic.stored for topic in found.topics), found.open_transactions


def odd(fields: dict[str, Any]) -> Any:
    fields = {"topic": "odd"} | fields
    properties, after = fields.pop("properties", {}), fields.pop("check_after", None)
    kind = fields.pop("message_type", None)
    made = message(**fields)
    made.user_properties.update(properties)
    if kind is not None:
        made.system_properties.message_type = kind
    if after is not None:
        made.system_properties.orphaned_transaction_recovery_duration.seconds = after
    return made


@pytest.mark.parametrize(("code", "sent"), SENDS)
async def test_an_odd_send_stores_nothing(
    strict: str, client: Client, topic: str, code: str, sent: list[dict[str, Any]]
) -> None:
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(SENT)) == "OK"
        before = stored(client)
        assert await raw.code("SendMessage", send(*map(odd, sent))) == code
        assert stored(client) == before


async def test_in_a_batch_each_message_has_its_own_code(strict: str, topic: str) -> None:
    taken = message(topic, SENT.system_properties.message_id, body=b"else")
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(SENT)) == "OK"
        answer = await raw.call("SendMessage", send(message(topic, "05" + 32 * "F"), taken))
    codes = [v2.Code.Name(one.status.code) for one in (answer, *answer.entries)]
    assert codes == ["MULTIPLE_RESULTS", "OK", "ILLEGAL_MESSAGE_ID"]


ENDS: list[tuple[str, dict[str, Any]]] = [
    ("BAD_REQUEST", {}),
    ("BAD_REQUEST", {"resolution": 99}),
    ("BAD_REQUEST", {"source": 99}),
    ("INVALID_TRANSACTION_ID", {"topic": "odd-other", "resolution": 1}),
    ("INVALID_TRANSACTION_ID", {"transaction_id": "no", "resolution": 1}),
    ("OK", {"resolution": 2}),
    ("OK", {"resolution": 2}),
    ("INVALID_TRANSACTION_ID", {"resolution": 1}),
]


async def test_an_end_of_a_transaction_that_does_not_fit_decides_nothing(
    strict: str, topic: str
) -> None:
    half = message(topic, TRANSACTION, type="TRANSACTION")
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(half)) == "OK"
        for code, fields in ENDS:
            given = {"topic": topic, "transaction_id": TRANSACTION} | fields
            assert await raw.code("EndTransaction", named("EndTransactionRequest", **given)) == code


HANDLES = (
    "garbage",
    100_000 * "x",
    "odd/-1/odd-readers/1/a",
    "odd/²/odd-readers/1/a",
    "../0/odd-readers/1/a",
    "odd/0/odd-readers/99999999999999999999/a",
    "odd/9/odd-readers/1/a",
    "odd/0/odd-readers/1/a\0",
)


@pytest.mark.parametrize("odd_handle", HANDLES)
async def test_a_forged_handle(strict: str, topic: str, odd_handle: str) -> None:
    async with Raw(strict) as raw:
        for group in ("odd-readers", "odd-pushers"):
            handle = odd_handle.replace("odd-readers", group)
            assert await ack_code(raw, group, topic, handle) == "INVALID_RECEIPT_HANDLE"
            for name in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
                if group == "odd-readers" and name.startswith("Forward"):
                    continue
                request = named(f"{name}Request", group, topic, receipt_handle=handle)
                assert await raw.code(name, request) == "INVALID_RECEIPT_HANDLE"


async def test_a_lease_is_settled_by_its_group_and_topic_and_within_the_limits(
    strict: str, topic: str
) -> None:
    async with Raw(strict) as raw:
        assert await raw.code("SendMessage", send(SENT)) == "OK"
        _, (found,) = await raw.receive(receive("odd-readers", topic, wait=10))
        handle = found.system_properties.receipt_handle
        assert await ack_code(raw, "odd-readers", "odd-other", handle) == "INVALID_RECEIPT_HANDLE"
        assert await ack_code(raw, "odd-pushers", topic, handle) == "INVALID_RECEIPT_HANDLE"
        for seconds in (-1, 13 * 3600, LONGEST, SHORTEST):
            change = named(
                "ChangeInvisibleDurationRequest", "odd-readers", topic, receipt_handle=handle
            )
            change.invisible_duration.seconds = seconds
            assert await raw.code("ChangeInvisibleDuration", change) == "ILLEGAL_INVISIBLE_TIME"
        forward = named("ForwardMessageToDeadLetterQueueRequest", "odd-readers", topic)
        forward.receipt_handle = handle
        assert await raw.code("ForwardMessageToDeadLetterQueue", forward) == "FORBIDDEN"
        assert await ack_code(raw, "odd-readers", topic, handle, handle) == "OK"


async def ack_code(raw: Raw, group: str, topic: str, *handles: str) -> str:
    entries = [v2.AckMessageEntry(receipt_handle=handle) for handle in handles]
    ack = named("AckMessageRequest", group, topic, entries=entries)
    return await raw.code("AckMessage", ack)


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("ILLEGAL_CONSUMER_GROUP", {}),
    ("UNRECOGNIZED_CLIENT_TYPE", {"client_type": 99}),
    ("UNSUPPORTED", {"client_type": 4}),
    ("OK", {"client_type": 1, "publishing": {}, "user_agent": {"language": 99}}),
    ("ILLEGAL_TOPIC", {"client_type": 1, "publishing": {"topics": [{"name": "../x"}]}}),
    ("ILLEGAL_CONSUMER_GROUP", {"client_type": 3, "subscription": {"group": {"name": "../x"}}}),
    ("FORBIDDEN", {"client_type": 2, "subscription": {"group": {"name": "odd-readers"},
        "subscriptions": [{"topic": {"name": "odd"}}]}}),
    ("ILLEGAL_FILTER_EXPRESSION", {"client_type": 3, "subscription": {
        "group": {"name": "odd-readers"},
        "subscriptions": [{"topic": {"name": "odd"}, "expression": {"type": 99}}]}}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fields"), SETTINGS)
async def test_odd_settings(strict: str, topic: str, code: str, fields: dict[str, Any]) -> None:
    async with Raw(strict) as raw:
        answer = await raw.telemetry(v2.TelemetryCommand(settings=v2.Settings(**fields)))
        assert v2.Code.Name(answer.status.code) == code


async def test_settings_are_answered_each_time_and_an_empty_command_is_passed_over(
    strict: str, topic: str
) -> None:
    command = v2.TelemetryCommand()
    command.settings.subscription.group.name = "odd-readers"
    async with Raw(strict) as raw:
        call = raw._method("stream_stream", "Telemetry")(metadata=METADATA, timeout=20)
        await call.write(v2.TelemetryCommand())
        for _ in range(3):
            await call.write(command)
            assert (await call.read()).status.code == v2.Code.OK
        call.cancel()


@pytest.mark.parametrize("data", [b"\x0a\x7f", b"\xff\xff", b"\x0a\x04\x12\x02\xff\xfe"])
async def test_what_is_no_request_is_answered_with_a_status(strict: str, data: bytes) -> None:
    unsupported = {"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"}
    async with Raw(strict) as raw:
        for name, method in service.methods_by_name.items():
            if name == "SyncLiteSubscription" or not refuses(method, data):
                continue
            code = await code_of_bytes(raw, method, data)
            assert (name, code) == (name, "UNSUPPORTED" if name in unsupported else "BAD_REQUEST")


def refuses(method: Any, data: bytes) -> bool:
    try:
        getattr(v2, method.input_type.name).FromString(data)
    except DecodeError:
        return True
    return False


async def code_of_bytes(raw: Raw, method: Any, data: bytes) -> str:
    kinds = {False: "unary", True: "stream"}
    kind = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    call = getattr(raw.channel, kind)(
        f"/{SERVICE}/{method.name}",
        request_serializer=bytes,
        response_deserializer=getattr(v2, method.output_type.name).FromString,
    )
    if method.client_streaming:
        stream = call(metadata=METADATA, timeout=20)
        await stream.write(data)
        answer = await stream.read()
        stream.cancel()
    elif method.server_streaming:
        (answer,) = [part async for part in call(data, metadata=METADATA, timeout=20)]
    else:
        answer = await call(data, metadata=METADATA, timeout=20)
    return str(v2.Code.Name(answer.status.code))
