"""timeline: every transition, with time, worker, attempt, error, next due time and trace."""

import time

import pytest

from rqretry.core.errors import MessageNotFound
from rqretry.core.message import OutgoingMessage
from tests.contract.admin.bench import Bench

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


def test_a_timeline_reports_each_step_with_attempt_error_due_time_and_trace(bench: Bench) -> None:
    bench.group()
    (id_,) = bench.publish(OutgoingMessage(body=1, headers=HEADERS))
    bench.fail(bench.lease(), "no answer", delay_ms=1)
    while not bench.lease_due():
        time.sleep(0.005)
    bench.fail(bench.leased, "still none", level=-1)
    bench.admin.redrive("g", ids=[id_])
    bench.succeed(bench.lease())

    events = bench.admin.timeline(id_)
    steps = [(e.event, e.attempt, e.error) for e in events]
    assert steps == [
        ("publish", None, ""),
        ("lease", 1, ""),
        ("fail", 1, "no answer"),
        ("promote", None, ""),
        ("lease", 2, ""),
        ("fail", 2, "still none"),
        ("redrive", None, ""),
        ("lease", 1, ""),
        ("succeed", 1, ""),
    ]
    assert [e.at_ms for e in events] == sorted(e.at_ms for e in events)
    assert events[0].trace_id == TRACE
    first, second = events[2], events[5]
    assert first.due_ms is not None and first.due_ms >= first.at_ms
    assert (first.level, first.worker) == (1, "w")
    assert first.note.startswith("no answer: waits on level 1 until 2")
    assert (second.due_ms, second.note) == (None, "still none: dead")


def test_what_the_history_has_lost_the_failure_record_still_reports(bench: Bench) -> None:
    bench.group()
    (id_,) = bench.dead_letter("d", reason="no use")
    bench.redis.delete("rqretry:test:{t:0}:events")
    (event,) = bench.admin.timeline(id_)
    assert (event.event, event.group, event.attempt, event.error) == ("fail", "g", 1, "no use")


def test_messages_are_found_by_the_key_they_were_published_with(bench: Bench) -> None:
    bench.group()
    bench.publish(OutgoingMessage(body=0, keys=["order-70"]))
    ids = [bench.publish(OutgoingMessage(body=n, keys=["order-7", f"line-{n}"]))[0] for n in (1, 2)]
    bench.succeed(bench.lease())
    assert bench.admin.find("order-7") == ids
    assert bench.admin.find("order-9") == []


def test_what_is_stored_is_found_by_its_key_whatever_the_history_has_lost(bench: Bench) -> None:
    bench.group()
    (dead,) = bench.publish(OutgoingMessage(body=0, keys="order-7"))
    bench.fail(bench.lease(), level=-1)
    (late,) = bench.publish(OutgoingMessage(body=1, keys="order-7", delay=60))
    tx = bench.client.transaction("t")
    half = tx.publish(OutgoingMessage(body=2, keys="order-7"))
    (other,) = bench.publish(OutgoingMessage(body=3, keys="order-7"), topic="u")
    bench.redis.delete("rqretry:test:{t:0}:events", "rqretry:test:{u:0}:events")
    assert sorted(bench.admin.find("order-7")) == sorted([dead, late, half, other])
    bench.admin.purge("g", all=True)
    tx.rollback()
    bench.client.recall(late)
    assert bench.admin.find("order-7") == [other]
    bench.admin.delete_topic("u")
    assert bench.admin.find("order-7") == []
    assert bench.keys_of(":keyed") == bench.keys_of(":message_keys") == []


def test_keys_go_with_the_group_that_was_the_last_to_owe_their_messages(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    (id_,) = bench.publish(OutgoingMessage(body=0, keys="order-7"))
    bench.admin.delete_group("g")
    assert bench.admin.find("order-7") == [id_]
    bench.admin.unsubscribe("h", "t")
    assert bench.keys_of(":keyed") == bench.keys_of(":message_keys") == []


def test_a_message_that_is_gone_is_remembered_by_its_history(bench: Bench) -> None:
    bench.group()
    (id_,) = bench.publish(1)
    bench.succeed(bench.lease())
    view = bench.admin.remembered(id_)
    assert (view.topic, [(s.group, s.state) for s in view.states]) == ("t", [("g", "committed")])
    with pytest.raises(MessageNotFound, match="never published here"):
        bench.admin.remembered("unknown")
    with pytest.raises(MessageNotFound, match="never published here"):
        bench.admin.explain("unknown")
