"""One gateway process, from its start to a signal."""

import asyncio
import signal
import socket
import ssl
import tempfile
from dataclasses import dataclass

from rqretry.client import AsyncClient
from rqretry.core.parts import parts_of
from rqretry.gateway.access import AccessKeys
from rqretry.gateway.front import Front, Probes
from rqretry.gateway.server import Gateway, Terms

CALL_S = 2.0
"""How long a call is repeated while Redis is away; clients wait 3 s."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a gateway is started with."""

    url: str | None
    namespace: str | None
    keys: AccessKeys
    tls: ssl.SSLContext
    advertise: tuple[str, int] | None
    create: bool


async def run(listening: socket.socket, options: Options) -> None:
    """Serve until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    with tempfile.TemporaryDirectory(prefix="rqretry-") as folder:
        backend = f"{folder}/grpc.sock"
        async with AsyncClient(options.url, namespace=options.namespace, timeout=CALL_S) as client:
            parts_of(client).catalog.topics.only_declared = not options.create
            gateway = Gateway(client, options.keys, Terms(options.advertise, options.create))
            await gateway.serve(f"unix:{backend}")
            store = parts_of(client).store
            probes = Probes(lambda: store.fault, gateway.metrics, gateway.calls.counted)
            front = Front(listening, backend, options.tls, probes)
            accepting = loop.create_task(front.serve())
            try:
                await stopped.wait()
            finally:
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)
                await gateway.aclose()
