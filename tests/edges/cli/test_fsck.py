"""rqretry fsck --repair: what it says, asks and does, and that nobody has to stop for it."""

import json
import threading
from typing import Any

import pytest
import redis

from rqretry import Client
from rqretry.cli import fsck
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis
from tests.edges.cli.shell import Shell
from tests.support.soundness import assert_sound


@pytest.fixture
def raw(server: EmbeddedRedis) -> Any:
    """The server itself, to damage what it holds."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as connection:
        yield connection


@pytest.fixture
def lost(client: Client, raw: Any) -> list[str]:
    """Three messages; the first is in no place, and the body of the last one is gone."""
    client.admin.create_topic("orders")
    client.simple_consumer("orders", group="g", create_group=True)
    ids = [str(id_) for id_ in client.publish_many("orders", ["lost", "here", "gone"])]
    keys = parts_of(client).catalog.group_keys("orders", 0, "g")
    assert raw.lrem(keys.ready, 0, ids[0]) == 1
    assert raw.hdel(keys.partition.bodies, ids[2]) == 1
    return ids


def everything(raw: Any) -> dict[bytes, bytes]:
    return {key: raw.dump(key) for key in raw.scan_iter()}


def received(client: Client) -> list[Any]:
    consumer = client.simple_consumer("orders", group="g")
    messages = consumer.receive(10, wait=0)
    consumer.ack(messages)
    return sorted(message.body for message in messages)


@pytest.mark.parametrize("request_parts", [["--repair"], ["--repair", "--dry-run"], []])
def test_without_a_yes_nothing_is_changed(
    shell: Shell, raw: Any, lost: list[str], request_parts: list[str]
) -> None:
    before = everything(raw)
    result = shell("fsck", *request_parts)
    assert result.exit_code == 1
    assert "2 errors" in result.stdout
    assert ("it is removed from every key of the group" in result.stdout) is bool(request_parts)
    assert ("give --yes to repair" in result.stderr) is (request_parts == ["--repair"])
    assert everything(raw) == before


def test_a_repair_asks_says_what_it_did_and_is_on_record(
    shell: Shell, client: Client, raw: Any, lost: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(fsck, "ask", asked.append)
    monkeypatch.setattr(fsck, "at_a_terminal", lambda: True)
    shown = shell.ok("fsck", "--repair")
    assert asked == ["repair 2 problems?"]
    assert "repaired:" in shown
    assert "1 partition read: 0 errors, 0 warnings" in shown
    noted = {entry.arguments["repair"]: entry for entry in client.admin.audit()}
    assert set(noted) == {"adopt", "repair put_back", "repair lost"}
    assert noted["repair put_back"].arguments["ids"] == [lost[0]]
    assert noted["repair lost"].counts == {"messages": 1}
    assert [e.event for e in client.admin.timeline(lost[0])] == ["publish", "repair", "repair"]
    assert received(client) == ["here", "lost"]
    assert_sound(parts_of(client).store)


def test_a_repair_by_a_program_says_yes_and_reads_json(
    shell: Shell, client: Client, raw: Any, lost: list[str]
) -> None:
    answer = shell.json("fsck", "--repair", "--yes")
    assert [(f["kind"], f["id"]) for f in answer["findings"]] == [
        ("missing body", lost[2]),
        ("orphan body", lost[0]),
    ]
    assert all(finding["remedy"] and not finding["advice"] for finding in answer["findings"])
    assert [(repair["group"], repair["ids"]) for repair in answer["repairs"]] == [
        ("", [lost[0]]),
        ("g", [lost[2]]),
        ("g", [lost[0]]),
    ]
    assert answer["left"] == []
    before = everything(raw)
    again = shell.json("fsck", "--repair", "--yes")
    assert (again["findings"], again["repairs"], again["left"]) == ([], [], [])
    assert everything(raw) == before, "a second run does nothing"


def test_what_a_person_must_decide_stays_and_says_what_to_do(
    shell: Shell, client: Client, raw: Any
) -> None:
    client.admin.create_topic("orders")
    tx = client.transaction("orders")
    id_ = tx.publish(1)
    raw.delete(parts_of(client).catalog.keys.transactions)
    result = shell("fsck", "--repair", "--yes", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    (left,) = answer["left"]
    assert (left["kind"], left["id"], left["remedy"]) == ("orphan half", id_, "")
    assert "publish it again" in left["advice"]
    assert "none: whether its transaction" in shell("fsck", "--repair", "--dry-run").stdout


def test_the_options_of_a_repair_need_the_repair(shell: Shell) -> None:
    assert "give --repair with them" in shell.fails("fsck", "--yes", status=2)
    assert "give --repair with them" in shell.fails("fsck", "--dry-run", status=2)


def test_a_repair_while_consumers_work_loses_nothing(client: Client, raw: Any) -> None:
    client.admin.create_topic("orders", partitions=2)
    consumers = [client.simple_consumer("orders", group=g, create_group=True) for g in "gh"]
    ids = set(client.publish_many("orders", range(400)))
    done: dict[str, set[str]] = {"g": set(), "h": set()}
    damaged = threading.Event()

    def consume(number: int) -> None:
        group, consumer = "gh"[number % 2], consumers[number % 2]
        while len(done[group]) < len(ids) or not damaged.is_set():
            for message in consumer.receive(8, invisible_duration=30, wait=0.05):
                consumer.ack(message)
                done[group].add(message.id)

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        keys = parts_of(client).catalog.group_keys("orders", number % 2, "gh"[number % 3 % 2])
        raw.lpop(keys.ready)
        client.admin.fsck(repair=True)
    damaged.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert done == {"g": ids, "h": ids}
    assert_sound(parts_of(client).store)
