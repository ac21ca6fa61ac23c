"""Calls of the protocol without a client library: what no well-behaved client sends."""

import asyncio
import copy
from typing import Any, Self

import grpc

from rqretry.gateway.protocol import SERVICE, service, v2

_PATIENCE_S = 20
METADATA = (("x-mq-client-id", "raw@1@0@test"),)


class Raw:
    """A channel to a gateway; an async context manager."""

    def __init__(self, address: str, metadata: Any = METADATA, root: bytes | None = None) -> None:
        if root is None:
            self.channel = grpc.aio.insecure_channel(address)
        else:
            trusted = grpc.ssl_channel_credentials(root)
            self.channel = grpc.aio.secure_channel(address, trusted)
        self._metadata = metadata

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    def by(self, client: str) -> "Raw":
        """The same channel by the name of another client."""
        made = copy.copy(self)
        made._metadata = (("x-mq-client-id", client),)
        return made

    def stream(self, name: str, request: Any) -> Any:
        method = self._method("unary_stream", name)
        return method(request, metadata=self._metadata, timeout=_PATIENCE_S)

    async def call(self, name: str, request: Any) -> Any:
        call = self._method("unary_unary", name)
        return await call(request, metadata=self._metadata, timeout=_PATIENCE_S)

    async def code(self, name: str, request: Any) -> str:
        """The name of the code of a call's status."""
        answer = await self.call(name, request)
        return str(v2.Code.Name(answer.status.code))

    async def receive(self, request: Any) -> tuple[str, list[Any]]:
        """The code of a receive, and its messages."""
        parts = [part async for part in self.stream("ReceiveMessage", request)]
        codes = [part.status.code for part in parts if part.HasField("status")]
        found = [part.message for part in parts if part.HasField("message")]
        return str(v2.Code.Name(codes[0])), found

    async def telemetry(self, command: Any, answers: int = 1) -> Any:
        """The last of so many answers to one telemetry command."""
        call = self._method("stream_stream", "Telemetry")(
            metadata=self._metadata, timeout=_PATIENCE_S
        )
        await call.write(command)
        answer = [await call.read() for _ in range(answers)][-1]
        await call.done_writing()
        call.cancel()
        await asyncio.sleep(0)
        return answer

    def _method(self, kind: str, name: str) -> Any:
        method = service.methods_by_name[name]
        return getattr(self.channel, kind)(
            f"/{SERVICE}/{name}",
            request_serializer=getattr(v2, method.input_type.name).SerializeToString,
            response_deserializer=getattr(v2, method.output_type.name).FromString,
        )


def message(topic: str, id_: str = "01" + 32 * "A", **system: Any) -> Any:
    """A message to send."""
    made = v2.Message(body=system.pop("body", b"body"))
    made.topic.name = topic
    kind = v2.MessageType.Value(system.pop("type", "NORMAL"))
    seconds = system.pop("deliver_at", None)
    made.system_properties.MergeFrom(
        v2.SystemProperties(message_id=id_, message_type=kind, **system)
    )
    if seconds is not None:
        made.system_properties.delivery_timestamp.seconds = seconds
    return made


def send(*messages: Any) -> Any:
    return v2.SendMessageRequest(messages=messages)


def receive(group: str, topic: str, **fields: Any) -> Any:
    """A receive of one message for 30 s that does not wait."""
    wait, invisible = fields.pop("wait", 0), fields.pop("invisible", 30)
    made = v2.ReceiveMessageRequest(**{"batch_size": 1} | fields)
    made.group.name, made.message_queue.topic.name = group, topic
    if not made.auto_renew:
        made.invisible_duration.seconds = invisible
    made.long_polling_timeout.seconds = wait
    return made


def named(kind: str, group: str = "", topic: str = "", **fields: Any) -> Any:
    """A request with a group and a topic, where it has them."""
    made = getattr(v2, kind)(**fields)
    for name, value in (("group", group), ("topic", topic)):
        if value:
            getattr(made, name).name = value
    return made
