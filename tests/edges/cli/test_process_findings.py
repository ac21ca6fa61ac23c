"""Processes that leave something undone: nobody moves what is due, or one was left behind."""

import json
import re
import time
from typing import Any

import redis

from rqretry import Client
from rqretry.core.parts import parts_of
from rqretry.protocol.lease import lease
from rqretry.protocol.maintain import register
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell

HOUR_MS = 3_600_000


def live(client: Client, name: str, version: str, **facts: Any) -> None:
    """A worker of the group registered a moment ago, and does nothing."""
    about = {"groups": ["g"], "topics": ["t"], "pid": 1, "version": version, **facts}
    parts = parts_of(client)
    parts.store.run(
        register(parts.catalog.keys, worker=name, about=json.dumps(about), ttl_ms=HOUR_MS)
    )


def test_what_no_process_moves_and_who_was_left_behind_is_named(
    client: Client, server: EmbeddedRedis, shell: Shell
) -> None:
    parts = parts_of(client)
    client.admin.create_topic("t")
    client.admin.create_group("g", "t")
    live(client, "a:1:x", "0.1.0", of={"g": [3, 4]}, rates=[["t", "g", 0.5]])
    assert re.search(r"versions +1 live worker *$", shell.ok("doctor"), re.MULTILINE)
    assert re.search(r"a:1:x +1 +0\.1\.0 +g +t ", shell.ok("workers"))
    live(client, "b:1:x", "0.1.0", of={"g": [1, 4]}, rates=[["t", "g", 1.0]])
    assert "warning upkeep" not in shell.ok("doctor")
    assert "2 live workers, of one version" in shell.ok("doctor")
    live(client, "c:1:x", "0.0.9", of={"g": [0, 4]})

    ids = client.publish_many("t", range(3))
    keys = parts.catalog.group_keys("t", 0, "g")
    parts.store.run(lease(keys, worker="a", want=1, visibility_ms=HOUR_MS))
    with redis.Redis(unix_socket_path=str(server.socket_path)) as raw:
        raw.zadd(keys.inflight, {str(ids[0]): (time.time() - 300) * 1000})

    status, doctor, workers = shell.ok("status"), shell.ok("doctor"), shell.ok("workers")
    late = "what is due has not been moved for 5 m"
    assert late in status
    assert late in doctor
    assert "c:1:x runs 0.0.9; the other workers run 0.1.0" in status
    assert "c:1:x runs 0.0.9; the other workers run 0.1.0" in doctor
    assert workers.count("works, others run 0.1.0") == 1
    assert shell.json("status")["other_versions"] == {"c:1:x": "0.0.9"}
    assert "group g of topic t runs 4 of 12 slots; at the 1.5 messages/s" in status
    (group,) = shell.json("status")["topics"][0]["groups"]
    assert (group["busy"], group["slots"], group["drain_s"]) == (4, 12, 2.0)
    found = client.admin.stats("t").topics[0].groups[0]
    assert 299 < found.late_s < 360
