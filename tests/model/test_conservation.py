"""Random verbs and clock jumps against real scripts and a plain model (style guide P14).

After every step each message is, for each group, in exactly one place, and it is the place where
the model says it is; nothing is lost; receipts that are over change nothing.

TESTS_MODEL=thorough runs 500 examples of 50 steps; TESTS_MODEL=soak (`make soak`) runs for
TESTS_MODEL_SECONDS (600) and prints the seed of each run; TESTS_MODEL_SEED is the first one.
"""

import os
import random
import sys
import time
from functools import partial
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from rqretry.core.receipt import Receipt
from rqretry.core.redis_url import RedisUrl
from rqretry.core.route import Route, RouteGroup
from rqretry.protocol import catalog
from rqretry.protocol.keys import partition_keys
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.store_sync import SyncStore
from tests.model.checked import SOURCE, VIEW, Settle
from tests.model.listening import Listening
from tests.model.model import DELAYS_MS, LEVELS_MS, MAX_ATTEMPTS, ORDERED_MS, READY, Group
from tests.model.partition import Cast, Partition
from tests.support.lua_hooks import virtual_time

COMMON: dict[str, Any] = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
    "database": None,
}
PROFILES = {
    "dev": settings(max_examples=30, stateful_step_count=25, **COMMON),
    "thorough": settings(max_examples=500, stateful_step_count=50, **COMMON),
    "soak": settings(max_examples=100, stateful_step_count=50, **COMMON),
}
NAME = os.environ.get("TESTS_MODEL", "dev")
PROFILE = PROFILES[NAME]
SOAK_SECONDS = float(os.environ.get("TESTS_MODEL_SECONDS", "600"))
SOAK_SEED = os.environ.get("TESTS_MODEL_SEED")

NAMES = "abc"
CAST_LIMIT = 2_000


class Conservation(Listening):
    """The rules of all themes, and how an example begins."""

    @initialize(
        partitions=st.integers(1, 3),
        groups=st.sampled_from([3, 2, 1, 0]),
        kind=st.sampled_from(["push", "simple"]),
        tags=st.sampled_from(["*", "x", "x || y"]),
        ordered=st.sampled_from(["", "a", "b", "ab", "abc"]),
        most=st.sampled_from([None, None, 2, 4]),
        broadcast=st.booleans(),
        cast_limit=st.sampled_from([None, CAST_LIMIT]),
    )
    def begin(
        self,
        partitions: int,
        groups: int,
        kind: str,
        tags: str,
        ordered: str,
        most: int | None,
        broadcast: bool,
        cast_limit: int | None,
    ) -> None:
        self.client.flushall()
        self.advance(0)
        self.keys = [partition_keys("model", "t", number) for number in range(partitions)]
        self.names = list(NAMES[:groups])
        filters = {"a": "*" if tags == "*" else "z || x", "b": tags, "c": "*"}
        routed = [
            RouteGroup(n, 97 + i, kind if n == "b" else "push", filters[n], n in ordered)
            for i, n in enumerate(self.names)
        ]
        # Without any group messages would wait in the backlog: see the tests of subscribe.
        broadcast = broadcast or not groups
        self.route = Route(1, partitions, tuple(routed), broadcast=broadcast)
        self.model = [
            Partition(
                {g.name: modelled(g, most) for g in routed}, modelled_cast(broadcast, cast_limit)
            )
            for _ in self.keys
        ]
        for part in range(partitions):
            self.install(part, most, cast_limit)
            self.fill(part)

    def install(self, part: int, most: int | None, cast_limit: int | None) -> None:
        """The groups, and one that consumes the dead letters of the first."""
        common: dict[str, Any] = {
            "max_retries": MAX_ATTEMPTS - 1,
            "levels": " ".join(map(str, LEVELS_MS)),
            "jitter": "0",
        }
        delays = " ".join(map(str, DELAYS_MS))
        for group in self.route.groups:
            fields = {**common, "kind": group.kind, "delays": delays, "byte": bytes((group.byte,))}
            if most is not None and group.name != "b":
                fields["max_inflight"] = most
            if group.ordered:
                fields |= {"ordered": 1, "delays": str(ORDERED_MS)}
            self.run(catalog.configure(self.group(part, group.name), 1, fields))
        keys = self.keys[part].group(VIEW, len(LEVELS_MS), SOURCE)
        fields = {**common, "kind": "push", "delays": delays, "byte": b"", "view": 1}
        self.run(catalog.configure(keys, 1, fields))
        self.run(catalog.subscribe(self.keys[part], self.route))
        if cast_limit is not None:
            self.client.hset(self.keys[part].meta, "cast_limit", cast_limit)

    def fill(self, part: int) -> None:
        """So that every place has somebody in it from the beginning."""
        self.publish(part, 4, 0, given=False, body=True, tag="x")
        self.publish(part, 4, 0, given=False, body=True, tag="x", name="g")
        for name in self.names:
            before = len(self.held["w1"])
            self.lease(part, name, "w1", 3, READY)
            receipts = [Receipt(id_, no) for _, _, id_, no in self.held["w1"][before:]]
            self.report_failures(Settle(part, name, "w1", receipts[:1]), -1)
            self.report_failures(Settle(part, name, "w1", receipts[1:2]), 0)


def modelled(group: RouteGroup, most: int | None) -> Group:
    takes = None if group.tags == "*" else frozenset(group.tags.split(" || "))
    limit = None if group.name == "b" else most
    return Group(group.kind, takes, group.ordered, most=limit)


def modelled_cast(broadcast: bool, limit: int | None) -> Cast | None:
    return Cast(limit) if broadcast else None


def runs() -> Any:
    """The seeds to run: one of Hypothesis's own choice, or new ones until the time is over."""
    if NAME != "soak":
        yield None
        return
    chosen = random.SystemRandom()
    end = time.monotonic() + SOAK_SECONDS
    number = int(SOAK_SEED) if SOAK_SEED else chosen.getrandbits(32)
    while time.monotonic() < end:
        yield number
        number = chosen.getrandbits(32)


@pytest.mark.timeout(120 if NAME == "dev" else 0)
def test_every_message_is_always_in_exactly_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        EmbeddedRedis() as server,
        redis.Redis(unix_socket_path=str(server.socket_path)) as client,
        SyncStore(RedisUrl.parse(server.url), virtual_time()) as store,
    ):
        machine: Any = partial(Conservation, client, store)
        for count, number in enumerate(runs(), start=1):
            if number is not None:
                with capsys.disabled():
                    sys.stdout.write(f"\nrun {count}: TESTS_MODEL_SEED={number} ")
                    sys.stdout.flush()
                machine = seeded(number)(partial(Conservation, client, store))
            run_state_machine_as_test(machine, settings=PROFILE)
