"""Who connects, how, and what is left when they are gone."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from rqretry import Client
from rqretry.cli.main import cli
from rqretry.gateway.protocol import v2
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.conftest import probe
from tests.edges.gateway.official import Official
from tests.edges.gateway.raw import METADATA, Raw, message, named, receive, send


async def test_tls_and_plain_text_share_one_port(gateway: str) -> None:
    host, _, port = gateway.partition(":")
    certificate = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    async with Raw(gateway, root=certificate.encode()) as safe, Raw(gateway) as plain:
        made = message("encrypted", "01" + 32 * "C")
        assert await safe.code("SendMessage", send(made)) == "OK"
        code, found = await plain.receive(receive("all", "encrypted"))
        assert (code, [one.body for one in found]) == ("OK", [b"body"])


async def test_only_signed_calls_are_answered_where_there_are_access_keys(
    rocketmq: ModuleType, start_gateway: Callable[..., str], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# key secret\nshop canary-secret\n")
    address = start_gateway("--auto-create", "--access-keys", str(keys))
    async with Raw(address) as raw:
        assert await raw.code("SendMessage", send(message("signed"))) == "UNAUTHORIZED"
        assert (await raw.receive(receive("all", "signed")))[0] == "UNAUTHORIZED"
    forged = "MQv2-HMAC-SHA1 Credential=shop, SignedHeaders=x-mq-date-time, Signature=" + 40 * "0"
    async with Raw(address, metadata=(*METADATA, ("authorization", forged))) as raw:
        assert await raw.code("SendMessage", send(message("signed"))) == "UNAUTHORIZED"
    signed = Official(rocketmq, address, rocketmq.Credentials("shop", "canary-secret"))
    try:
        producer = await asyncio.to_thread(signed.producer, "signed")
        await asyncio.to_thread(producer.send, signed.message("signed", b"mine"))
    finally:
        await asyncio.to_thread(signed.close)


async def test_a_poll_that_its_client_left_takes_no_message(gateway: str) -> None:
    async with Raw(gateway) as gone, Raw(gateway) as here:
        assert (await here.receive(receive("all", "left")))[0] == "MESSAGE_NOT_FOUND"
        call = gone.stream("ReceiveMessage", receive("all", "left", wait=15))
        reading = asyncio.create_task(call.read())
        await asyncio.sleep(0.2)  # it is on its way or there: both are to be right
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await here.call("SendMessage", send(message("left", "01" + 32 * "D")))
        code, (found,) = await here.receive(receive("all", "left", wait=15))
        assert (code, found.system_properties.delivery_attempt) == ("OK", 1)


async def test_connected_clients_are_among_the_workers(gateway: str, client: Client) -> None:
    async with Raw(gateway) as raw:
        beat = named("HeartbeatRequest", "all", client_type=v2.ClientType.SIMPLE_CONSUMER)
        assert await raw.code("Heartbeat", beat) == "OK"
        names: set[str] = set()
        for _ in range(200):
            names = {worker.name for worker in client.admin.workers()}
            if METADATA[0][1] in names:
                return
            await asyncio.sleep(0.05)
    raise AssertionError(names)


async def test_calls_are_answered_in_time_while_redis_is_away(
    start_gateway: Callable[..., str],
) -> None:
    with EmbeddedRedis() as server:
        address = start_gateway("--auto-create", url=server.url)
        async with Raw(address) as raw:
            assert await raw.code("SendMessage", send(message("away"))) == "OK"
            server.kill()
            sent, (received, _) = await asyncio.gather(
                raw.code("SendMessage", send(message("away"))),
                raw.receive(receive("all", "away", wait=15)),
            )
            assert (sent, received) == ("PROXY_TIMEOUT", "PROXY_TIMEOUT")
            assert (await asyncio.to_thread(probe, address))[0] == 503
            server.restart()
            assert await raw.code("SendMessage", send(message("away"))) == "OK"
        assert (await asyncio.to_thread(probe, address, "/"))[0] == 404
        assert await asyncio.to_thread(probe, address, "/livez") == (200, "live\n")
        _, text = await asyncio.to_thread(probe, address, "/metrics")
        for code, count in (("OK", 2), ("PROXY_TIMEOUT", 1)):
            labels = f'method="SendMessage",code="{code}"}} {count}'
            assert labels in text
        assert "rqretry_gateway_ready{" in text
        assert int(text.partition("rqretry_gateway_received_bytes_total{")[2].split()[1]) > 100


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--listen", "0.0.0.0:8081"], "open to other machines: give --access-keys"),
        (["--listen", "8081"], "must be HOST:PORT"),
        (["--tls-key", __file__], "without --tls-cert"),
        (["--tls-cert", __file__], "cannot be used"),
        (["--access-keys", __file__], " must be an access key"),
        (["--redis", "embedded", "--url", "redis://127.0.0.1:1"], "keep one"),
    ],
)
def test_options_that_cannot_work_are_refused(options: list[str], text: str) -> None:
    result = CliRunner().invoke(cli, ["gateway", *options])
    assert result.exit_code in (1, 2)
    assert text in result.output
