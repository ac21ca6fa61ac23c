"""Telemetry: settings both ways; heartbeats; goodbyes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from rqretry.core.catalog_records import PUSH, SIMPLE, GroupRecord
from rqretry.core.limits import MAX_BODY_BYTES, MAX_RECEIVE
from rqretry.gateway.clients import Clients
from rqretry.gateway.codes import OK, Code, Refused, status_of
from rqretry.gateway.groups import Groups
from rqretry.gateway.leases import Leases
from rqretry.gateway.policies import LONG_POLLING_S, attempts_of, delays_of, tags_of
from rqretry.gateway.protocol import set_seconds, v2
from rqretry.gateway.requests import Caller, Names

_SEND_ATTEMPTS, _SEND_BACK_OFF = 3, (0.01, 1.0, 2.0)
_NODE_AGAIN_S = (1.0, 5.0)
"""When a Node.js client gets its settings again: see decision 0094."""
_KINDS = {
    v2.ClientType.PRODUCER: "producer",
    v2.ClientType.PUSH_CONSUMER: PUSH,
    v2.ClientType.SIMPLE_CONSUMER: SIMPLE,
}


class Telemetry:
    """What clients say of themselves, and are to do."""

    def __init__(self, names: Names, groups: Groups, clients: Clients, leases: Leases) -> None:
        self._names = names
        self._groups = groups
        self._clients = clients
        self._leases = leases

    async def heartbeat(self, request: Any, caller: Caller) -> Any:
        """The client lives."""
        if not caller.client.kind:  # the Go client up to 5.1.3 sends "simple" for push consumers
            self._note_kind(caller, request.client_type)
        if request.HasField("group"):
            group = self._names.group(request.group)
            if not self._groups.create:
                await self._groups.record(group)
            caller.client.groups.add(group)
        return v2.HeartbeatResponse(status=OK)

    async def notify_client_termination(self, _request: Any, caller: Caller) -> Any:
        """The client stops: what it holds is given back."""
        await self._leases.release_all(caller.client)
        await self._clients.forget(caller.client)
        return v2.NotifyClientTerminationResponse(status=OK)

    async def telemetry(self, requests: AsyncIterator[Any], caller: Caller) -> AsyncIterator[Any]:
        """Answer settings with the group's, and send what the client is to do."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        streams = caller.client.streams
        streams.append(queue)
        reading = asyncio.get_running_loop().create_task(self._read(requests, caller, queue))
        try:
            while (command := await queue.get()) is not None:
                yield command
        finally:
            reading.cancel()
            streams.remove(queue)

    async def _read(
        self, requests: AsyncIterator[Any], caller: Caller, queue: "asyncio.Queue[Any]"
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            async for command in requests:
                if isinstance(command, Refused):
                    queue.put_nowait(v2.TelemetryCommand(status=status_of(command)))
                elif command.HasField("settings"):
                    answer = await self._settings(command.settings, caller)
                    queue.put_nowait(answer)
                    if command.settings.user_agent.language == v2.Language.NODE_JS:
                        for wait_s in _NODE_AGAIN_S:
                            loop.call_later(wait_s, queue.put_nowait, answer)
        finally:
            queue.put_nowait(None)

    async def _settings(self, settings: Any, caller: Caller) -> Any:
        try:
            self._note_kind(caller, settings.client_type)
            if settings.HasField("publishing"):
                made = self._of_producer(settings, caller)
            else:
                made = await self._of_consumer(settings, caller)
        except Exception as error:  # noqa: BLE001 - the stream goes on
            return v2.TelemetryCommand(status=status_of(error))
        return v2.TelemetryCommand(status=OK, settings=made)

    def _note_kind(self, caller: Caller, kind: int) -> None:
        if kind not in v2.ClientType.values():
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {kind} is not known")
        if kind and kind not in _KINDS:
            raise Refused(
                Code.UNSUPPORTED, "only producers, push consumers and simple consumers are served"
            )
        caller.client.kind = _KINDS.get(kind, caller.client.kind)

    def _of_producer(self, settings: Any, caller: Caller) -> Any:
        topics = [self._names.topic(topic) for topic in settings.publishing.topics]
        caller.client.topics.update(topics)
        made = v2.Settings()
        made.CopyFrom(settings)
        made.publishing.max_body_size = MAX_BODY_BYTES
        made.publishing.validate_message_type = True
        made.backoff_policy.max_attempts = _SEND_ATTEMPTS
        initial, longest, multiplier = _SEND_BACK_OFF
        exponential = made.backoff_policy.exponential_backoff
        set_seconds(exponential.initial, initial)
        set_seconds(exponential.max, longest)
        exponential.multiplier = multiplier
        return made

    async def _of_consumer(self, settings: Any, caller: Caller) -> Any:
        group = self._names.group(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            topic, tags = self._names.topic(entry.topic, source=True), tags_of(entry.expression)
            await self._groups.reader(caller.client, group, topic, tags)
        if settings.subscription.subscriptions or not self._groups.create:
            record = await self._groups.record(group)
        else:  # it is created when it subscribes
            record = GroupRecord.new(group, caller.client.kind or PUSH)
        caller.client.groups.add(group)
        made = v2.Settings()
        made.CopyFrom(settings)
        made.subscription.fifo = record.ordered
        made.subscription.receive_batch_size = MAX_RECEIVE
        set_seconds(made.subscription.long_polling_timeout, LONG_POLLING_S)
        made.backoff_policy.max_attempts = attempts_of(record)
        for delay_ms in delays_of(record, self._groups.levels):
            set_seconds(made.backoff_policy.customized_backoff.next.add(), delay_ms / 1000)
        return made
