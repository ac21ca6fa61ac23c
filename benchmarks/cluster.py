"""A private cluster of three primaries for one measurement, without persistence."""

import contextlib
import time
from types import TracebackType
from typing import Any, Self

from benchmarks.servers import Server

_SLOTS = 16384
_PATIENCE_S = 60.0


class Cluster:
    """Servers with the slots divided evenly; one or three of them.

    Args:
        primaries: How many.

    Attributes:
        servers: The primaries.
    """

    def __init__(self, primaries: int = 3) -> None:
        self.servers = [Server(extra=("--cluster-enabled", "yes")) for _ in range(primaries)]
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{s.port}" for s in self.servers)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opening:
            for server in self.servers:
                opening.enter_context(server)
            self._form()
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def _form(self) -> None:
        per = -(-_SLOTS // len(self.servers))
        for number, server in enumerate(self.servers):
            slots = range(number * per, min(_SLOTS, (number + 1) * per))
            server.client.execute_command("CLUSTER ADDSLOTS", *slots)
            server.client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        for server in self.servers[1:]:
            server.client.execute_command("CLUSTER MEET", "127.0.0.1", self.servers[0].port)
        until = time.monotonic() + _PATIENCE_S
        while not all(self._complete(server.client) for server in self.servers):
            assert time.monotonic() < until, "the cluster was not formed in time"
            time.sleep(0.02)

    def _complete(self, client: Any) -> bool:
        info = client.execute_command("CLUSTER INFO")
        known, slots = info["cluster_known_nodes"], info["cluster_slots_ok"]
        return info["cluster_state"] == "ok" and (int(known), int(slots)) == (
            len(self.servers), _SLOTS,
        )  # fmt: skip
