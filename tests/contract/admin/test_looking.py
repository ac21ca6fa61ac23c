"""workers, inflight, timeline, explain, stats and the audit record."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from rqretry.admin import queries, statistics
from rqretry.admin.context import AdminContext
from rqretry.core.errors import InvalidArgument, MessageNotFound
from rqretry.core.message import OutgoingMessage
from rqretry.core.parts import parts_of
from rqretry.core.worker_info import About, groups_of
from rqretry.protocol.command import Operation
from tests.contract.admin.bench import Bench

PATIENCE_S = 10.0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_the_live_workers_with_what_they_serve_and_since_when(bench: Bench) -> None:
    bench.group()
    bench.appear("w2")
    bench.appear("w1", group="h", topic="u")
    before = {worker.name: worker.since_ms for worker in bench.admin.workers()}
    bench.appear("w1", group="h", topic="u")
    first, second = bench.admin.workers()
    assert (first.name, first.groups, first.topics, first.pid) == ("w1", ("h",), ("u",), 7)
    assert (second.name, second.groups) == ("w2", ("g",))
    assert (second.version, second.slots, second.blocked_s) == ("", 0, 0), "it says nothing of that"
    bench.appear("w2", version="0.0.9", service="shop", slots=4, busy=3, failed=2, restarts="bad")
    (_, second) = bench.admin.workers()
    assert (second.version, second.service, second.busy, second.slots) == ("0.0.9", "shop", 3, 4)
    assert (second.failures, second.restarts) == (2, 0)
    assert first.since_ms == before["w1"] is not None
    bench.appear("w1", ttl_ms=0)
    assert [worker.name for worker in bench.admin.workers()] == ["w2"]


def test_what_is_in_flight_by_deadline(bench: Bench) -> None:
    bench.group("g", "t", "u")
    (sent,) = bench.publish(1)
    (other,) = bench.publish(2, topic="u")
    assert bench.admin.inflight("g") == []
    bench.lease()
    bench.lease(topic="u")
    rows = bench.admin.inflight("g")
    assert all(row.holder and row.since_ms is not None for row in rows)
    assert {(row.id, row.topic, row.partition, row.attempt) for row in rows} == {
        (sent, "t", 0, 1),
        (other, "u", 0, 1),
    }
    assert [row.deadline_ms for row in rows] == sorted(row.deadline_ms for row in rows)


def test_explaining_a_message_in_every_state(bench: Bench) -> None:
    bench.group()
    bench.appear("w1")

    def recorded(id_: str) -> str:
        (sentence,) = bench.admin.explain(id_).values()
        return sentence

    (dead,) = bench.dead_letter("d", reason="no use")
    assert recorded(dead) == "dead after 1 delivery, cause failure: no use"
    (waits,) = bench.publish("w")
    bench.fail(bench.lease())
    date = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"waits on level 3, due in .+, at {date}, then attempt 2", recorded(waits))
    (late,) = bench.publish("l")
    bench.fail(bench.lease(), delay_ms=1)
    until(lambda: "was due" in recorded(late))
    assert recorded(late).startswith("waits on level 1 and was due ")
    (runs,) = bench.publish("r")
    bench.lease()
    assert re.fullmatch(
        rf"worker w has it since {date}, attempt 1, until {date}, for .* more", recorded(runs)
    )
    (ready,) = bench.publish("ready")
    assert recorded(ready) == "ready, no worker has taken it yet, 0 messages are ahead of it"
    (scheduled,) = bench.publish("s", delay=60)
    assert recorded(scheduled).startswith("published with a delay, due in ")
    (alone,) = bench.publish("a", topic="alone")
    assert "no consumer group" in recorded(alone)


def test_explaining_why_nothing_happens_without_a_live_worker(bench: Bench) -> None:
    bench.group()
    (ready,) = bench.publish(1)
    assert "the group has no live worker" in bench.admin.explain(ready)["g"]
    bench.fail(bench.lease(), delay_ms=3_600_000)
    assert bench.admin.explain(ready)["g"].endswith("; the group has no live worker")
    bench.admin.pause("g")
    assert bench.admin.explain(ready)["g"].endswith("; the group is paused")
    bench.admin.resume("g")
    (late,) = bench.publish(2)
    bench.fail(bench.lease(), delay_ms=1)
    until(lambda: bench.admin.explain(late)["g"].startswith("ready, but the group has no live"))


def test_a_committed_message_is_explained_from_its_history(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    (sent,) = bench.publish(1)
    bench.succeed(bench.lease(group="g"), group="g")
    recorded = bench.admin.explain(sent)["g"]
    assert recorded.startswith("this group has finished with it: committed at ")
    assert recorded.endswith(" by w")
    bench.succeed(bench.lease(group="h"), group="h")
    ends = bench.admin.explain(sent)
    assert set(ends) == {"g", "h"}
    assert all(sentence.startswith("committed at ") for sentence in ends.values())
    events = [(event.event, event.group) for event in bench.admin.timeline(sent)]
    assert events == [
        ("publish", ""),
        ("lease", "g"),
        ("succeed", "g"),
        ("lease", "h"),
        ("succeed", "h"),
    ]
    with pytest.raises(MessageNotFound):
        bench.admin.message(sent)


@pytest.mark.parametrize("verb", ["explain", "timeline", "message"])
def test_nothing_is_known_of_an_unknown_message(bench: Bench, verb: str) -> None:
    bench.group()
    with pytest.raises(MessageNotFound, match="'nothing'"):
        getattr(bench.admin, verb)("nothing")


def test_numbers_name_what_nobody_consumes_and_what_it_takes(bench: Bench) -> None:
    bench.group("idle")
    bench.group("busy")
    bench.group("by-hand", kind="simple")
    bench.appear("w1", group="busy")
    bench.publish("x" * 20_000)
    bench.publish(1, topic="alone")
    bench.admin.set_topic("t", max_messages=50)
    stats = bench.admin.stats()
    assert stats.groups_without_consumer == [("t", "idle")]
    assert stats.topics_without_group == ["alone"]
    by_name = {topic.topic: topic for topic in stats.topics}
    assert by_name["t"].bytes is not None
    assert by_name["t"].bytes > 20_000 > (by_name["alone"].bytes or 0) > 0
    assert (by_name["t"].max_messages, by_name["alone"].max_messages) == (50, None)
    assert by_name["t"].history_bytes > 0
    assert stats.used_memory is not None
    assert stats.used_memory > 100_000
    assert stats.max_memory == 0


def test_numbers_of_a_user_who_may_not_ask_for_memory(bench: Bench) -> None:
    bench.group()
    bench.publish(1)
    bench.redis.execute_command(
        "ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-memory"
    )
    url = bench.url.replace("unix://", "unix://reader:secret@", 1)
    with type(bench.client)(url, namespace="test") as reader:
        stats = reader.admin.stats("t")
    assert stats.topics[0].bytes is None
    assert stats.ready == 1


def test_the_audit_record_says_who_what_and_when(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(1)
    assert bench.admin.audit() == []
    bench.admin.pause("g")
    bench.admin.set_group("g", max_retries=3, pin=True)
    bench.admin.purge("g", all=True)
    newest, middle, oldest = bench.admin.audit()
    assert (newest.verb, newest.counts) == ("purge", {"messages": 1})
    assert (middle.verb, middle.arguments) == (
        "set_group",
        {"group": "g", "max_retries": "3", "pin": True},
    )
    assert (oldest.verb, oldest.actor) == ("pause", parts_of(bench.client).name)
    assert oldest.at_ms <= middle.at_ms <= newest.at_ms
    assert [entry.verb for entry in bench.admin.audit(count=1)] == ["purge"]
    with pytest.raises(InvalidArgument, match="count"):
        bench.admin.audit(count=0)


def test_every_cause_has_a_sentence_of_its_own(bench: Bench) -> None:
    bench.group()
    bench.appear("w1")
    stated: dict[str, str] = {}

    def explain(name: str, id_: str, group: str = "g") -> None:
        stated[name] = bench.admin.explain(id_)[group]

    (date,) = bench.publish("date", delay=60)
    explain("a date", date)
    (dead,) = bench.dead_letter("dead", reason="no use")
    explain("dead", dead)
    (level,) = bench.publish("level")
    bench.fail(bench.lease())
    explain("a level", level)
    (running,) = bench.publish("running")
    bench.lease()
    explain("in flight", running)
    (ready,) = bench.publish("ready")
    explain("ready", ready)
    bench.admin.set_group("g", max_inflight=1)
    explain("max in flight", ready)
    bench.admin.set_group("g", max_inflight=None, rate_limit="1/h")
    explain("rate limit", ready)
    bench.admin.pause("g")
    explain("paused", ready)
    bench.group("h", "t", tags="late")
    (filtered,) = bench.publish(OutgoingMessage(body=1, tag="early"))
    explain("filtered", filtered, "h")
    (wanted,) = bench.publish(OutgoingMessage(body=1, tag="late"))
    explain("no live consumer", wanted, "h")
    stated |= other_causes(bench)
    request_parts = {
        "a date": "published with a delay, due in",
        "dead": "dead after 1 delivery, cause failure: no use",
        "a level": "waits on level 3, due in",
        "in flight": "worker w has it since",
        "ready": "ready, no worker has taken it yet",
        "max in flight": "the group is at its max_inflight",
        "rate limit": "the group takes 1/h (rate_limit)",
        "paused": "the group is paused",
        "filtered": "not for this group, which takes late: its tag is early",
        "no live consumer": "the group has no live worker",
        "message group": "in its message group, 1 messages are ahead of it",
        "transaction": "is unresolved: check 1 of 15 in",
        "committed": "committed at ",
        "nobody may move it": "no worker, receive or reaper has moved it yet",
    }
    assert stated.keys() == request_parts.keys()
    assert {name for name in request_parts if request_parts[name] not in stated[name]} == set(), (
        stated
    )
    assert len(set(stated.values())) == len(stated)


def other_causes(bench: Bench) -> dict[str, str]:
    """Causes that need groups of their own."""
    stated: dict[str, str] = {}
    bench.group("line", "ordered", ordered=True)
    head, behind = (bench.client.publish("ordered", number, message_group="x") for number in (1, 2))
    stated["message group"] = bench.admin.explain(behind)["line"]
    assert stated["message group"].startswith(f"behind {head} ")
    tx = bench.client.transaction("ordered")
    stated["transaction"] = bench.admin.explain(tx.publish(1))["-"]
    tx.rollback()
    bench.succeed(bench.lease(group="line", topic="ordered"), group="line", topic="ordered")
    stated["committed"] = bench.admin.explain(head)["line"]
    bench.group("alone", "late")
    (late,) = bench.publish(1, topic="late")
    bench.fail(bench.lease(group="alone", topic="late"), group="alone", topic="late", delay_ms=1)
    bench.redis.execute_command("ACL", "SETUSER", "idle", "on", ">x", "~*", "&*", "+@all", "-rpush")
    url = bench.url.replace("unix://", "unix://idle:x@", 1)
    with type(bench.client)(url, namespace="test") as idle:
        until(lambda: "no worker, receive" in idle.admin.explain(late)["alone"])
        stated["nobody may move it"] = idle.admin.explain(late)["alone"]
    return stated


def test_statistics_of_many_topics_share_round_trips_and_read_each_worker_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        bench.group(f"g{number}", f"t{number}")
        bench.appear(f"w{number}", group=f"g{number}", topic=f"t{number}")
    steps: list[Any] = []
    parsed: list[str] = []

    def counted(operation: Operation[Any]) -> Operation[Any]:
        outcome: Any = None
        with suppress(StopIteration):
            while True:
                steps.append(operation.send(outcome))
                outcome = yield steps[-1]

    def reading(about: str) -> About:
        parsed.append(about)
        return groups_of(about)

    monkeypatch.setattr(statistics, "groups_of", reading)
    parts = parts_of(bench.client)
    parts.store.perform(counted(queries.stats(AdminContext(parts.catalog, "test"))))
    assert len(parsed) == 20
    assert len(steps) < 12, "one round trip for each step, not for each topic"
