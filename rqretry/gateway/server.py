"""The gRPC server: which call is whose, who calls, and errors as the protocol's codes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from rqretry.client import AsyncClient
from rqretry.core.errors import RqretryError
from rqretry.core.parts import parts_of
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.clients import Clients
from rqretry.gateway.codes import Code, Refused, status, status_of
from rqretry.gateway.gateways import Gateways
from rqretry.gateway.groups import MOST_POLLS, Groups
from rqretry.gateway.leases import Leases
from rqretry.gateway.metrics import Counted, render
from rqretry.gateway.protocol import SERVICE, service, v2
from rqretry.gateway.receiving import Receiving
from rqretry.gateway.requests import Caller, Names
from rqretry.gateway.routes import Routes
from rqretry.gateway.sending import Sending
from rqretry.gateway.settling import Settling
from rqretry.gateway.telemetry import Telemetry
from rqretry.gateway.transactions import Transactions
from rqretry.maintenance.upkeep import Upkeep

log = logging.getLogger("rqretry")

_MOST_BYTES = 8 * 1024 * 1024
"""Of one request; a body may have 4 MiB, and is refused with a status of its own."""
_MOST_PENDING = 2 * MOST_POLLS
"""Calls that come at once; gRPC cancels each one above that, and by default many above 1,000."""
_UNSUPPORTED = ["PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"]
"""Queues here have no offsets, and there are no lite topics."""
_LOOK_EVERY_S, _SHORTEST_S, _AGAIN_S = 1.0, 0.005, 0.5
Answer = Callable[[Any, Caller], Any]


@dataclass(frozen=True, slots=True)
class Terms:
    """How a gateway serves.

    Attributes:
        advertise: Where clients reach it, for routes; None: as they have.
        create: Whether unknown topics and groups are created.
    """

    advertise: tuple[str, int] | None = None
    create: bool = False


class Calls:
    """The calls of the service."""

    def __init__(self, client: AsyncClient, keys: AccessKeys, terms: Terms) -> None:
        parts = parts_of(client)
        store, catalog = parts.store, parts.catalog
        self.counted = Counted()
        self.names = Names(parts.settings.namespace)
        self.keys = keys
        self.clients = Clients(store, catalog.keys)
        self.groups = Groups(store, catalog, create=terms.create)
        self.gateways = Gateways(store, catalog.keys, terms.advertise)
        self.leases = Leases(store, self.gateways)
        self.transactions = Transactions(self.names, client, self.clients)
        self._sending = Sending(self.names, client, self.transactions.prepare)
        self._routes = Routes(self.names, self.groups, self.gateways)

    def handlers(self) -> dict[str, Any]:
        """A handler for each method of the service."""
        names, store, groups = self.names, self.groups.store, self.groups
        transactions, routes, sending = self.transactions, self._routes, self._sending
        telemetry = Telemetry(names, groups, self.clients, self.leases)
        settling = Settling(names, store, groups, self.leases)
        receiving = Receiving(names, store, groups, self.leases)
        unary: dict[str, Answer] = {
            "QueryRoute": routes.query_route,
            "QueryAssignment": routes.query_assignment,
            "Heartbeat": telemetry.heartbeat,
            "NotifyClientTermination": telemetry.notify_client_termination,
            "SendMessage": sending.send_message,
            "RecallMessage": sending.recall_message,
            "AckMessage": settling.ack_message,
            "ChangeInvisibleDuration": settling.change_invisible_duration,
            "ForwardMessageToDeadLetterQueue": settling.forward_message_to_dead_letter_queue,
            "EndTransaction": transactions.end_transaction,
        }
        made = {name: self._unary(name, answer) for name, answer in unary.items()}
        one_way, both_ways = (
            grpc.unary_stream_rpc_method_handler,
            grpc.stream_stream_rpc_method_handler,
        )
        made["ReceiveMessage"] = self._stream(one_way, "ReceiveMessage", receiving.receive_message)
        made["Telemetry"] = self._stream(both_ways, "Telemetry", telemetry.telemetry)
        for name in _UNSUPPORTED:
            made[name] = self._unsupported(name)
        return made

    def _caller(self, context: Any) -> Caller:
        metadata = dict(context.invocation_metadata())
        self.keys.check(metadata)
        client = self.clients.heard(str(metadata.get("x-mq-client-id", "")))
        return Caller(client, metadata, context.time_remaining())

    def _unary(self, name: str, answer: Answer) -> Any:
        response = _response_of(name)

        async def handle(request: Any, context: Any) -> Any:
            try:
                caller = self._caller(context)
                _check(request)
                async with self.groups.slots:
                    answered = await answer(request, caller)
            except Exception as error:  # noqa: BLE001 - it becomes a status
                answered = response(status=status_of(error))
            self.counted.calls[name, answered.status.code] += 1
            return answered

        return _handler(grpc.unary_unary_rpc_method_handler, name, handle)

    def _stream(
        self, kind: Any, name: str, answer: Callable[[Any, Caller], AsyncIterator[Any]]
    ) -> Any:
        """`kind`: Whether there is one request, or a stream of them."""
        response = _response_of(name)

        async def handle(asked: Any, context: Any) -> AsyncIterator[Any]:
            counted = False
            try:
                caller = self._caller(context)
                _check(asked)
                async for part in answer(asked, caller):
                    if not counted:
                        counted = True
                        self.counted.calls[name, part.status.code] += 1
                    yield part
            except Exception as error:  # noqa: BLE001 - it becomes a status
                refused = status_of(error)
                self.counted.calls[name, refused.code] += 1
                yield response(status=refused)

        return _handler(kind, name, handle)

    def _unsupported(self, name: str) -> Any:
        refused = _response_of(name)(
            status=status(Code.UNSUPPORTED, f"{name} is not supported: receive and ack")
        )

        async def handle(_request: Any, _context: Any) -> Any:
            return refused

        async def stream(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield refused

        if service.methods_by_name[name].server_streaming:
            return _handler(grpc.unary_stream_rpc_method_handler, name, stream)
        return _handler(grpc.unary_unary_rpc_method_handler, name, handle)


class Gateway:
    """A gRPC server for one namespace, and what it does beside answering."""

    def __init__(self, client: AsyncClient, keys: AccessKeys, terms: Terms) -> None:
        self._client = client
        self.calls = Calls(client, keys, terms)
        self._stack = AsyncExitStack()

    async def serve(self, address: str) -> int:
        """Answer at this address from now on; the port, if it has one."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", _MOST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
                ("grpc.server.max_pending_requests", _MOST_PENDING),
                ("grpc.server.max_pending_requests_hard_limit", _MOST_PENDING),
            ]
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, self.calls.handlers()),)
        )
        port: int = server.add_insecure_port(address)
        await server.start()
        self._stack.push_async_callback(self._end, server)
        beside = (
            self.calls.gateways.keep_registered(),
            self.calls.clients.keep_registered(),
            self.calls.leases.keep_renewed(),
            self.calls.transactions.keep_checking(),
            self._keep_up(),
        )
        for work in beside:
            task = asyncio.get_running_loop().create_task(work)
            self._stack.push_async_callback(_cancelled, task)
        return port

    def metrics(self) -> str:
        """As Prometheus reads it."""
        calls = self.calls
        return render(
            calls.counted,
            polls=calls.groups.polls,
            clients=len(calls.clients),
            leases=len(calls.leases),
            ready=calls.groups.store.fault is None,
        )

    async def aclose(self) -> None:
        """Answer what waits, and end."""
        await self._stack.aclose()

    async def _end(self, server: Any) -> None:
        await self.calls.groups.aclose()
        await server.stop(grace=2.0)
        await self.calls.gateways.unregister()
        await self.calls.clients.unregister()

    async def _keep_up(self) -> None:
        """Move what is due in the namespace, as a worker does for its groups."""
        parts = parts_of(self._client)
        upkeep = Upkeep(parts.catalog, parts.name, spread=parts.store.spread)
        while True:
            pause = _AGAIN_S
            try:
                done = await parts.store.perform(upkeep.round())
                next_s = _LOOK_EVERY_S if done.next_ms is None else done.next_ms / 1000
                pause = 0.0 if done.more else min(_LOOK_EVERY_S, max(_SHORTEST_S, next_s))
            except RqretryError as error:
                log.warning("maintenance failed, trying again: %s", error)
            await asyncio.sleep(pause)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _response_of(name: str) -> Any:
    return getattr(v2, service.methods_by_name[name].output_type.name)


def _check(request: Any) -> None:
    """Raises Refused for a request that could not be read."""
    if isinstance(request, Refused):
        raise request


def _handler(kind: Callable[..., Any], name: str, handle: Callable[..., Any]) -> Any:
    request = getattr(v2, service.methods_by_name[name].input_type.name)

    def read(data: bytes) -> Any:
        try:
            return request.FromString(data)
        except DecodeError as error:
            return Refused(Code.BAD_REQUEST, f"the request cannot be read: {error}")

    return kind(
        handle,
        request_deserializer=read,
        response_serializer=_response_of(name).SerializeToString,
    )
