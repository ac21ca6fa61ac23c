"""A gateway is killed with -9 while push consumers work on what it delivered."""

import time

from rqretry import Client, RetryPolicy
from rqretry.core.parts import parts_of
from rqretry.gateway.protocol import v2
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.conftest import launch, serving, wait_until_ready
from tests.edges.gateway.raw import Raw, message, named, receive, send

LEASE_S = 1.0
SHORT = f"""
from rqretry.cli.main import cli
from rqretry.gateway import leases, receiving
leases.VISIBILITY_S = receiving.VISIBILITY_S = {LEASE_S}
cli()
"""
"""A gateway that holds what push consumers have for a second, in place of thirty."""
ID = "01" + 32 * "E"


async def test_what_takes_longer_than_its_lease_comes_again_as_an_expired_attempt(
    redis_server: EmbeddedRedis, client: Client
) -> None:
    client.admin.create_topic("slow")
    parts = parts_of(client)
    parts.store.perform(
        parts.catalog.join("slow", "push", ["slow"], policy=RetryPolicy.fixed(0.05))
    )
    taken = receive("slow", "slow", auto_renew=True, wait=15)
    address, process = launch("--url", redis_server.url, program=("-c", SHORT))
    try:
        wait_until_ready(address, process)
        async with Raw(address) as raw:
            await raw.call("SendMessage", send(message("slow", ID)))
            asked_at = time.monotonic()
            _, (first,) = await raw.receive(taken)
    finally:
        process.kill()
        process.wait()
    async with serving(redis_server.url, create=False) as other, Raw(other) as raw:
        _, (second,) = await raw.receive(taken)
        assert time.monotonic() - asked_at >= LEASE_S
        attempts = [one.system_properties.delivery_attempt for one in (first, second)]
        assert attempts == [1, 2]
        late, now = (one.system_properties.receipt_handle for one in (first, second))
        for kind in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
            request = named(f"{kind}Request", "slow", "slow", receipt_handle=late)
            assert await raw.code(kind, request) == "INVALID_RECEIPT_HANDLE"
        acks = []
        for handle in (late, now):
            ack = named("AckMessageRequest", "slow", "slow")
            ack.entries.add(receipt_handle=handle)
            acks.append(await raw.call("AckMessage", ack))
        codes = [v2.Code.Name(ack.status.code) for ack in acks]
        assert codes == ["INVALID_RECEIPT_HANDLE", "OK"]
    events = [(one.event, one.attempt) for one in client.admin.timeline(ID) if one.group]
    assert events == [("lease", 1), ("expire", 1), ("lease", 2), ("succeed", 2)]
