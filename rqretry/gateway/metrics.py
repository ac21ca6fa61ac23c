"""What a gateway process counts, for GET /metrics on its own port."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rqretry.gateway.codes import Code
from rqretry.observability.prometheus_text import Family, Sample, expose


@dataclass(slots=True)
class Counted:
    """Since the process started.

    Attributes:
        calls: By method and code; of a stream the first code counts.
        connections: That are open.
        received, sent: Bytes of clients and to them, without those of TLS.
    """

    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    connections: int = 0
    received: int = 0
    sent: int = 0


def render(counted: Counted, *, polls: int, clients: int, leases: int, ready: bool) -> str:
    """As Prometheus reads it. Processes that share a port are told apart by their label."""
    return expose(_families(counted, polls, clients, leases, ready), {"process": str(os.getpid())})


def _families(
    counted: Counted,
    polls: int,
    clients: int,
    leases: int,
    ready: bool,  # noqa: FBT001 - a sample
) -> Iterator[Family]:
    calls: list[Sample] = [
        ({"method": method, "code": Code.Name(code) if code in Code.values() else str(code)}, count)
        for (method, code), count in sorted(counted.calls.items())
    ]
    yield "rqretry_gateway_calls_total", "counter", "Calls by method and code.", calls
    for name, kind, text, value in (
        ("rqretry_gateway_open_polls", "gauge", "Receives that wait for a message.", polls),
        ("rqretry_gateway_clients", "gauge", "Clients that are connected.", clients),
        (
            "rqretry_gateway_connections",
            "gauge",
            "Connections of clients.",
            counted.connections,
        ),
        ("rqretry_gateway_leases", "gauge", "Leases that are renewed for push consumers.", leases),
        (
            "rqretry_gateway_received_bytes_total",
            "counter",
            "Bytes that clients sent.",
            counted.received,
        ),
        (
            "rqretry_gateway_sent_bytes_total",
            "counter",
            "Bytes that were sent to clients.",
            counted.sent,
        ),
        ("rqretry_gateway_ready", "gauge", "1 while Redis can be used, as /readyz says.", ready),
    ):
        yield name, kind, text, [({}, float(value))]
