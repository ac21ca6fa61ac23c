"""All calls of the service, and all properties of a delivery."""

import hashlib
import time

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.gateway.protocol import service, v2
from tests.edges.gateway.raw import Raw, message, named, receive, send

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_every_call_of_the_service_is_answered_with_a_status(strict: str) -> None:
    codes: dict[str, str] = {}
    async with Raw(strict) as raw:
        for name, method in service.methods_by_name.items():
            request = getattr(v2, method.input_type.name)()
            if method.client_streaming:
                request.settings.client_type = v2.ClientType.PULL_CONSUMER
                answer = await raw.telemetry(request)
            elif method.server_streaming:
                (answer,) = [part async for part in raw.stream(name, request)]
            else:
                answer = await raw.call(name, request)
            codes[name] = v2.Code.Name(answer.status.code)
    assert codes == {
        "QueryRoute": "ILLEGAL_TOPIC",
        "Heartbeat": "OK",
        "SendMessage": "BAD_REQUEST",
        "QueryAssignment": "ILLEGAL_TOPIC",
        "ReceiveMessage": "ILLEGAL_CONSUMER_GROUP",
        "AckMessage": "ILLEGAL_CONSUMER_GROUP",
        "ForwardMessageToDeadLetterQueue": "ILLEGAL_CONSUMER_GROUP",
        "PullMessage": "UNSUPPORTED",
        "UpdateOffset": "UNSUPPORTED",
        "GetOffset": "UNSUPPORTED",
        "QueryOffset": "UNSUPPORTED",
        "EndTransaction": "ILLEGAL_TOPIC",
        "Telemetry": "UNSUPPORTED",
        "NotifyClientTermination": "OK",
        "ChangeInvisibleDuration": "ILLEGAL_CONSUMER_GROUP",
        "RecallMessage": "ILLEGAL_TOPIC",
        "SyncLiteSubscription": "UNSUPPORTED",
    }


async def test_a_route_has_a_queue_for_each_partition_and_an_assignment_one_for_all(
    strict: str, client: Client
) -> None:
    client.admin.create_topic("parted", partitions=3)
    parts = parts_of(client)
    parts.store.perform(parts.catalog.join("parts", "push", ["parted"]))
    here = v2.Endpoints(scheme=v2.AddressScheme.IPv4)
    here.addresses.add(host="127.0.0.1", port=1)
    async with Raw(strict) as raw:
        asked = named("QueryRouteRequest", topic="parted", endpoints=here)
        queues = (await raw.call("QueryRoute", asked)).message_queues
        asked = named("QueryAssignmentRequest", "parts", "parted", endpoints=here)
        (assigned,) = (await raw.call("QueryAssignment", asked)).assignments
    assert [queue.id for queue in queues] == [0, 1, 2]
    assert assigned.message_queue.id == -1
    kinds = [v2.MessageType.Value(name) for name in ("NORMAL", "FIFO", "DELAY", "TRANSACTION")]
    for queue in (*queues, assigned.message_queue):
        assert queue.broker.endpoints == here
        assert list(queue.accept_message_types) == kinds


async def test_a_delivery_has_all_system_properties(lenient: str) -> None:
    made = message(
        "whole", "01" + 32 * "F", body=b"hello", tag="red", keys=["k1", "k2"], born_host="shop-1",
        trace_context=TRACE, message_group="one", type="FIFO",
    )  # fmt: skip
    made.user_properties["colour"] = "blue"
    async with Raw(lenient) as raw:
        assert (await raw.receive(receive("all", "whole")))[0] == "MESSAGE_NOT_FOUND"
        assert await raw.code("SendMessage", send(made)) == "OK"
        _, (found,) = await raw.receive(receive("all", "whole", invisible=30, wait=10))
    system = found.system_properties
    assert (found.topic.name, found.body) == ("whole", b"hello")
    assert dict(found.user_properties) == {"colour": "blue", "traceparent": TRACE}
    assert (system.message_id, system.message_type) == ("01" + 32 * "F", v2.MessageType.FIFO)
    assert (system.tag, list(system.keys), system.message_group) == ("red", ["k1", "k2"], "one")
    assert (system.born_host, system.trace_context) == ("shop-1", TRACE)
    assert system.body_digest.type == v2.DigestType.MD5
    digest = hashlib.md5(b"hello", usedforsecurity=False).hexdigest()
    assert system.body_digest.checksum.lower() == digest
    assert (system.delivery_attempt, system.invisible_duration.seconds) == (1, 30)
    assert (system.queue_id, system.queue_offset) == (0, 0)
    assert system.receipt_handle
    assert abs(system.store_timestamp.seconds - time.time()) < 60
    assert abs(system.born_timestamp.seconds - time.time()) < 60
