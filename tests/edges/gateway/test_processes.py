"""Several processes that accept from one port."""

import os
import signal
import subprocess
import time
from pathlib import Path

import grpc

from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.gateway.conftest import launch, wait_until_ready
from tests.edges.gateway.raw import Raw, message, send


async def test_a_process_that_is_killed_is_replaced_and_a_signal_then_ends_all(
    redis_server: EmbeddedRedis,
) -> None:
    options = ("--url", redis_server.url, "--auto-create", "--processes", "2")
    address, process = launch(*options)
    try:
        wait_until_ready(address, process)
        before = children(process)
        os.kill(before[0], signal.SIGKILL)
        async with Raw(address) as raw:
            number, end = 0, time.monotonic() + 15
            while len(now := {*children(process)} - {before[0]}) < len(before):
                number += 1
                assert time.monotonic() < end
                assert await is_sent(raw, number)
        assert before[1] in now
    finally:
        process.terminate()  # the new one is still starting
        assert process.wait(20) == 0


async def is_sent(raw: Raw, number: int) -> bool:
    """Whether a message is, where it is repeated when its connection breaks, as clients do."""
    for _ in range(20):
        try:
            code = await raw.code("SendMessage", send(message("shared", f"0C{number:032X}")))
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
        else:
            return code == "OK"
    return False


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    pid = process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
