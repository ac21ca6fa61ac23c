"""What all requests have: who calls, and names of topics and groups."""

from dataclasses import dataclass
from typing import Any

from rqretry.core.errors import show
from rqretry.core.limits import check_group, check_source, check_topic
from rqretry.gateway.clients import ConnectedClient
from rqretry.gateway.codes import Code, Refused, checked


@dataclass(frozen=True, slots=True)
class Names:
    """Reads topics and groups as requests name them.

    Attributes:
        namespace: The one that is served.
    """

    namespace: str

    def topic(self, resource: Any, *, source: bool = False) -> str:
        """The topic that a request names; `source`: it may be the dead letters of a group."""
        check = check_source if source else check_topic
        return checked(Code.ILLEGAL_TOPIC, check, self._name(resource, Code.ILLEGAL_TOPIC))

    def group(self, resource: Any) -> str:
        """The group that a request names."""
        code = Code.ILLEGAL_CONSUMER_GROUP
        return checked(code, check_group, self._name(resource, code))

    def _name(self, resource: Any, code: int) -> str:
        wanted, own = resource.resource_namespace, self.namespace
        if wanted not in ("", own):
            raise Refused(
                code, f"namespace {show(wanted)} is not served here, only {show(own)}: leave it out"
            )
        return str(resource.name)


@dataclass(slots=True)
class Caller:
    """Whose call it is."""

    client: ConnectedClient
    metadata: dict[str, str]
    remaining_s: float | None
    """Until the client does not wait any more; None: it does not say."""
