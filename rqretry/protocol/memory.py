"""What the server says of its memory."""

from typing import Any

from rqretry.protocol.command import Command, query, text
from rqretry.protocol.keys import PartitionKeys


def memory(keys: PartitionKeys) -> Command[int]:
    """The bytes of a partition's bodies, estimated from a sample of them."""
    return query(lambda reply: int(reply or 0), "MEMORY", "USAGE", keys.bodies, "SAMPLES", 20)


def server_memory() -> Command[dict[str, int]]:
    """The server's `used_memory` and `maxmemory`, in bytes."""
    return query(_memory, "INFO", "memory")


def _memory(reply: Any) -> dict[str, int]:
    lines = (line.partition(":") for line in text(reply).splitlines())
    wanted = ("used_memory", "maxmemory")
    return {name: int(value) for name, colon, value in lines if colon and name in wanted}
