"""QueryRoute and QueryAssignment: partitions as message queues."""

from typing import Any

from rqretry.core.limits import DLQ
from rqretry.gateway.codes import OK, Code, Refused
from rqretry.gateway.groups import Groups
from rqretry.gateway.messages import TYPES
from rqretry.gateway.protocol import v2
from rqretry.gateway.requests import Caller, Names

BROKER = "rqretry"
ANY_QUEUE = -1
"""What a receive names that takes from all partitions, as each does here."""


class Routes:
    """Where topics are.

    Args:
        names: Of topics and groups.
        groups: The groups.
        endpoints: Where clients reach this gateway; None: as they have.
    """

    def __init__(self, names: Names, groups: Groups, endpoints: Any) -> None:
        self._names = names
        self._groups = groups
        self._endpoints = endpoints

    async def query_route(self, request: Any, _caller: Caller) -> Any:
        """The partitions of a topic, one queue each."""
        topic = self._names.topic(request.topic, source=True)
        partitions = await self._partitions(topic)
        answer = v2.QueryRouteResponse(status=OK)
        for number in range(partitions):
            self._fill(answer.message_queues.add(), request, number)
        return answer

    async def query_assignment(self, request: Any, _caller: Caller) -> Any:
        """One queue for all partitions: leases keep clients from getting the same message."""
        topic = self._names.topic(request.topic, source=True)
        group = self._names.group(request.group)
        await self._partitions(topic)
        if not self._groups.create:
            await self._groups.record(group)
        answer = v2.QueryAssignmentResponse(status=OK)
        self._fill(answer.assignments.add().message_queue, request, ANY_QUEUE)
        return answer

    async def _partitions(self, topic: str) -> int:
        if topic.startswith(DLQ):
            await self._groups.record(topic.removeprefix(DLQ))
            return 1
        return await self._groups.partitions(topic)

    def _fill(self, queue: Any, request: Any, number: int) -> None:
        queue.topic.CopyFrom(request.topic)
        queue.id = number
        queue.permission = v2.Permission.READ_WRITE
        queue.broker.name = BROKER
        endpoints = self._endpoints or request.endpoints
        if not endpoints.addresses:
            raise Refused(
                Code.ILLEGAL_ACCESS_POINT,
                "the request names no endpoints and the gateway none of its own (--advertise)",
            )
        queue.broker.endpoints.CopyFrom(endpoints)
        queue.accept_message_types.extend(TYPES)
