"""QueryRoute and QueryAssignment: partitions as message queues."""

from typing import Any

from rqretry.core.limits import DLQ
from rqretry.gateway.codes import OK, Code, Refused
from rqretry.gateway.gateways import Gateways
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
        gateways: Where clients reach this and the others.
    """

    def __init__(self, names: Names, groups: Groups, gateways: Gateways) -> None:
        self._names = names
        self._groups = groups
        self._gateways = gateways

    async def query_route(self, request: Any, _caller: Caller) -> Any:
        """The partitions of a topic, one queue each."""
        topic = self._names.topic(request.topic, source=True)
        partitions = await self._partitions(topic)
        answer, places = v2.QueryRouteResponse(status=OK), await self._places(request)
        for number in range(partitions):
            place = places[number % len(places)]
            self._fill(answer.message_queues.add(), request.topic, number, place)
        return answer

    async def query_assignment(self, request: Any, _caller: Caller) -> Any:
        """One queue for all partitions: leases keep clients from getting the same message."""
        topic = self._names.topic(request.topic, source=True)
        group = self._names.group(request.group)
        await self._partitions(topic)
        if not self._groups.create:
            await self._groups.record(group)
        answer, (place, *_) = v2.QueryAssignmentResponse(status=OK), await self._places(request)
        self._fill(answer.assignments.add().message_queue, request.topic, ANY_QUEUE, place)
        return answer

    async def _partitions(self, topic: str) -> int:
        if topic.startswith(DLQ):
            await self._groups.record(topic.removeprefix(DLQ))
            return 1
        return await self._groups.partitions(topic)

    async def _places(self, request: Any) -> list[Any]:
        places = await self._gateways.endpoints() or [request.endpoints]
        if not places[0].addresses:
            raise Refused(
                Code.ILLEGAL_ACCESS_POINT,
                "the request names no endpoints and the gateway none of its own (--advertise)",
            )
        return places

    def _fill(self, queue: Any, topic: Any, number: int, place: Any) -> None:
        queue.topic.CopyFrom(topic)
        queue.id = number
        queue.permission = v2.Permission.READ_WRITE
        queue.broker.name = BROKER
        queue.broker.endpoints.CopyFrom(place)
        queue.accept_message_types.extend(TYPES)
