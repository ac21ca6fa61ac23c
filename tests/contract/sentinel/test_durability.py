"""Durability on request: WAIT on the publish's own connection, told on the id (R7)."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rqretry import AsyncClient, InvalidArgument, NotConfirmed, OutgoingMessage
from rqretry.core.durability import CONFIRM_SECONDS, check_server, doubt
from rqretry.core.errors import ConfigError
from tests.contract.integration.harness import NAMESPACE
from tests.contract.sentinel.conftest import SentinelLab
from tests.edges.cli.shell import Shell

NO_DISK = "needs Redis 7.2 or newer|confirms before"


@pytest.fixture
def unresponsive(lab: SentinelLab) -> Iterator[SentinelLab]:
    """The replica does not listen for a while."""
    replica = lab.fleet.replica
    lab.fleet._call(replica, "REPLICAOF", "NO", "ONE")
    yield lab
    lab.fleet._call(replica, "REPLICAOF", "127.0.0.1", lab.fleet.primary.port)


def test_a_replica_that_has_it_is_reported_on_the_id(lab: SentinelLab) -> None:
    client = lab.client()

    id_ = client.publish("t", "a", durability="replica:1")
    many = client.publish_many("t", ["b", "c"], durability="replica:1")
    mixed = client.publish_many("t", [OutgoingMessage(body="d", durability="replica:1"), "e"])
    again = client.publish("t", "a", id="mine", durability="replica:1")
    twice = client.publish("t", "a", id="mine", durability="replica:1")

    assert [i.durability for i in (id_, *many, *mixed)] == [*["replica:1"] * 4, "memory"]
    assert client.publish("t", "x").durability == "memory"
    assert (again.duplicate, twice.duplicate) == (False, True)
    assert again.durability == twice.durability == "replica:1"


async def test_the_same_with_asyncio(lab: SentinelLab) -> None:
    async with AsyncClient(lab.url, namespace=NAMESPACE) as client:
        id_ = await client.publish("t", "a", durability="replica:1")
        many = await client.publish_many("t", ["b", "c"], durability="replica:1")
        assert [i.durability for i in (id_, *many)] == ["replica:1"] * 3
        with pytest.raises(NotConfirmed, match="1 of 2 replicas"):
            await client.publish("t", "a", durability="replica:2")
    assert lab.client().admin.stats("t").topics[0].stored == 4


def test_what_no_replica_confirms_is_stored_and_says_so(unresponsive: SentinelLab) -> None:
    client = unresponsive.client()
    client.admin.create_topic("t")
    started = time.monotonic()

    with pytest.raises(NotConfirmed, match="is stored, but replica:1 was not confirmed") as caught:
        client.publish("t", "a", durability="replica:1")

    assert time.monotonic() - started >= CONFIRM_SECONDS - 0.1
    assert client.admin.stats("t").topics[0].stored == 1
    assert client.admin.message(caught.value.id).id == caught.value.id
    assert client.publish("t", "a", id=caught.value.id).duplicate
    assert client.admin.stats("t").topics[0].stored == 1


def test_of_many_all_that_are_not_confirmed_are_named(unresponsive: SentinelLab) -> None:
    client = unresponsive.client()
    with pytest.raises(NotConfirmed, match="3 messages, the first") as caught:
        client.publish_many("t", ["a", "b", "c"], durability="replica:1")
    assert len(caught.value.ids) == 3
    assert client.admin.stats("t").topics[0].stored == 3


def test_disk_is_refused_where_the_server_cannot_tell(lab: SentinelLab) -> None:
    client = lab.client()
    client.admin.create_topic("t")
    with pytest.raises(ConfigError, match=f"({NO_DISK}).* nothing was stored"):
        client.publish("t", "a", durability="disk")
    assert client.admin.stats("t").topics[0].stored == 0


@pytest.mark.parametrize("bad", ["replica", "replica:0", "replica:x", "replica:-1", "disc", 1])
def test_another_durability_is_refused_before_anything_is_sent(lab: SentinelLab, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r'must be "memory", "disk" or "replica:N"'):
        lab.client().publish("t", "a", durability=bad)


@pytest.mark.parametrize(
    ("durability", "reply", "recorded"),
    [
        ("replica:1", 1, ""),
        ("replica:1", 3, ""),
        ("replica:2", 1, "1 of 2 replicas"),
        ("disk", [1, 0], ""),
        ("disk", [0, 0], "not synced in time"),
        ("disk", ConfigError("ERR appendonly is disabled"), "appendonly is disabled"),
    ],
)
def test_what_a_reply_confirms(durability: str, reply: Any, recorded: str) -> None:
    assert recorded in doubt(durability, reply)
    assert bool(doubt(durability, reply)) is bool(recorded)


def test_waitaof_is_known_by_the_version() -> None:
    check_server(("WAIT", 1, 0), "Redis 6.2.0", "h:1")
    for new in ("Redis 7.2.4", "Redis 7.4.3", "Redis 8.0.0", "Valkey 7.2.5", "Valkey 8.1.0"):
        check_server(("WAITAOF", 1, 0, 0), new, "h:1")
    for old in ("Redis 6.2.14", "Redis 7.0.15", ""):
        with pytest.raises(ConfigError, match="h:1"):
            check_server(("WAITAOF", 1, 0, 0), old, "h:1")


@pytest.mark.parametrize("server", ["Redis 7.4.0", "Redis 7.4.2", "Valkey 8.0.0", "Valkey 8.0.9"])
def test_disk_is_refused_where_the_server_confirms_before_the_file_is_synced(server: str) -> None:
    check_server(("WAIT", 1, 0), server, "h:1")
    with pytest.raises(ConfigError, match=f"{server} at h:1 confirms before .* nothing was stored"):
        check_server(("WAITAOF", 1, 0, 0), server, "h:1")


def test_the_same_from_a_command_line(lab: SentinelLab) -> None:
    sh = Shell(lab.url)
    request_parts = ["publish", "t", "--body", "1", "--namespace", NAMESPACE, "--durability"]
    assert len(sh.ok(*request_parts, "replica:1").strip()) == 16
    assert "1 of 2 replicas" in sh.fails(*request_parts, "replica:2", status=1)
    assert re.search(NO_DISK, sh.fails(*request_parts, "disk", status=1))
    assert "must be" in sh.fails(*request_parts, "paper", status=2)
    assert lab.client().admin.stats("t").topics[0].stored == 2
