"""A gateway, and publishers and consumers that speak RocketMQ's protocol to it.

gRPC does not survive a fork, so it is imported in these processes alone.
"""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rqretry import OutgoingMessage
from rqretry.core.errors import AmbiguousResult
from rqretry.core.message import ReceiptHandle
from rqretry.core.message_id import MessageId
from tests.chaos.campaigns.actors import NAMESPACE, TOPIC, publish_with
from tests.model.checker.history import EFFECTS, LineFile, process_name

GROUP = "g0"
_CALL_S, _INVISIBLE_S, _AGAIN_S, _MOST = 3.0, 2, 0.1, 16
_OPTIONS = (("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200))


def serve(order: dict[str, Any]) -> None:
    """A gateway process."""
    from rqretry.gateway.access import AccessKeys  # noqa: PLC0415 - see above
    from rqretry.gateway.run import Options, run  # noqa: PLC0415

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    options = Options(order["url"], NAMESPACE, AccessKeys({}), tls, None, create=False)
    with socket.create_server(("127.0.0.1", order["port"])) as listening:
        asyncio.run(run(listening, options))


def publish(order: dict[str, Any]) -> None:
    """A publisher of the protocol."""
    publish_with(_Sender(_Calls(order["port"], order["name"])), order)


def consume(order: dict[str, Any]) -> None:
    """A push consumer of the protocol, one message after another, until it is killed."""
    calls = _Calls(order["port"], "consumer")
    table, v2 = LineFile(Path(order["folder"]) / EFFECTS), calls.v2
    asked = v2.ReceiveMessageRequest(batch_size=_MOST)
    asked.group.name, asked.message_queue.topic.name = GROUP, TOPIC
    asked.invisible_duration.seconds = _INVISIBLE_S
    asked.long_polling_timeout.seconds = 1
    while True:
        parts = calls.answers("ReceiveMessage", asked)
        for message in [part.message for part in parts if part.HasField("message")]:
            _handle(calls, table, message)


def _handle(calls: "_Calls", table: LineFile, message: Any) -> None:
    system, plan = message.system_properties, json.loads(message.body)
    handle = ReceiptHandle.parse(system.receipt_handle)
    about = {"topic": TOPIC, "group": GROUP, "id": handle.id, "lease_no": handle.lease_no,
             "proc": process_name()}  # fmt: skip
    attempt = system.delivery_attempt
    table.append([{"e": "start", "attempt": attempt, **about, "at_ns": time.time_ns()}])
    time.sleep(plan["sleep"])
    failed = attempt <= plan["fails"]
    outcome = "failure" if failed else "dead_letter" if plan["dies"] else "success"
    ended = {"e": "end", "outcome": outcome, "chosen": outcome == "dead_letter"}
    table.append([{**ended, **about, "at_ns": time.time_ns()}])
    names = {"success": "AckMessage", "failure": "ChangeInvisibleDuration"}
    name = names.get(outcome, "ForwardMessageToDeadLetterQueue")
    request = getattr(calls.v2, f"{name}Request")()
    request.group.name, request.topic.name = GROUP, TOPIC
    if outcome == "success":
        request.entries.add(receipt_handle=system.receipt_handle)
    else:
        request.receipt_handle = system.receipt_handle
    for _ in range(3):  # as the clients do; then its lease ends
        if calls.answers(name, request):
            return


class _Sender:
    """What RecordedClient wants of a client: each message has an id of its own."""

    def __init__(self, calls: "_Calls") -> None:
        self._calls = calls

    def publish(self, topic: str, item: OutgoingMessage) -> MessageId:
        return self.publish_many(topic, [item])[0]

    def publish_many(self, topic: str, items: Sequence[OutgoingMessage]) -> list[MessageId]:
        v2 = self._calls.v2
        request, ids = v2.SendMessageRequest(), [str(item.id) for item in items]
        for item in items:
            made = request.messages.add(body=json.dumps(item.body).encode())
            made.topic.name = topic
            made.user_properties.update(item.headers or {})
            made.system_properties.message_id = str(item.id)
        answers = self._calls.answers("SendMessage", request)
        if not answers or answers[0].status.code != v2.Code.OK:
            raise AmbiguousResult("publish", ids, str(answers)[:200])
        return [MessageId(entry.message_id) for entry in answers[0].entries]


class _Calls:
    """Calls to the gateway at a port, by the name of one client."""

    def __init__(self, port: int, name: str) -> None:
        import grpc  # noqa: PLC0415 - see above

        from rqretry.gateway.protocol import SERVICE, service, v2  # noqa: PLC0415

        self.v2, self._service, self._prefix, self._grpc = v2, service, f"/{SERVICE}/", grpc
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}", _OPTIONS)
        self._metadata = (("x-mq-client-id", f"{name}-{process_name()}"),)

    def answers(self, name: str, request: Any) -> list[Any]:
        """What a call is answered; nothing if it was cut off."""
        method = self._service.methods_by_name[name]
        kind = "unary_stream" if method.server_streaming else "unary_unary"
        call = getattr(self._channel, kind)(
            self._prefix + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(self.v2, method.output_type.name).FromString,
        )
        try:
            answer = call(request, timeout=_CALL_S, metadata=self._metadata)
            found = [*answer] if method.server_streaming else [answer]
        except self._grpc.RpcError:
            time.sleep(_AGAIN_S)
            found = []
        return found
