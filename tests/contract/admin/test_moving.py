"""promote, purge by state and reset: what is not dead yet."""

from collections.abc import Callable
from typing import Any

import pytest

from rqretry import DeadLetterFilter
from rqretry.core.errors import GroupNotFound, InvalidArgument
from rqretry.core.message_id import MessageId
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Block, Command, Each, Operation, Pause
from tests.contract.admin.bench import Bench

HOUR_MS = 3_600_000


def waiting(bench: Bench, *bodies: str, reason: str = "boom", delay_ms: int = HOUR_MS) -> list[str]:
    """Published, failed once, and waiting for their retry."""
    bench.publish(*bodies)
    receipts = bench.lease(len(bodies))
    bench.fail(receipts, reason, delay_ms=delay_ms)
    return [receipt.id for receipt in receipts]


def test_promoting_runs_waiting_retries_now_and_keeps_their_count(bench: Bench) -> None:
    bench.group()
    ids = waiting(bench, "a", "b")
    assert bench.admin.promote("g", dry_run=True) == 2
    assert bench.numbers() == (0, 0, 0, 2, 0)
    assert bench.admin.promote("g") == 2
    assert bench.numbers() == (0, 2, 0, 0, 0)
    leased = {receipt.id for receipt in bench.lease()}
    assert leased == set(ids)  # those of one millisecond come in any order
    assert {row.attempt for row in bench.admin.inflight("g")} == {2}
    assert bench.verbs() == ["promote"]


def test_promoting_wakes_a_consumer_that_waits(bench: Bench) -> None:
    bench.group()
    waiting(bench, "a")
    bench.redis.delete(bench.keys().wake)
    bench.admin.promote("g")
    assert bench.redis.exists(bench.keys().wake)


def test_promoting_one_level_or_one_kind_of_error_leaves_the_rest(bench: Bench) -> None:
    bench.group()
    waiting(bench, "a", delay_ms=10_000)
    waiting(bench, "b", reason="other")
    (chosen,) = waiting(bench, "c")
    assert bench.admin.promote("g", level=3) == 1
    assert bench.admin.promote("g", error="other") == 1
    assert bench.admin.promote("g", ids=[chosen]) == 1
    assert bench.admin.promote("g", DeadLetterFilter(all=True)) == 0


def test_promoting_more_than_one_batch(bench: Bench) -> None:
    bench.group()
    bench.client.publish_many("t", range(1200))
    for _ in range(3):
        bench.fail(bench.lease(500), delay_ms=HOUR_MS)
    assert bench.admin.promote("g") == 1200
    assert bench.numbers() == (0, 1200, 0, 0, 0)


def test_what_promote_does_not_take_is_refused(bench: Bench) -> None:
    bench.group()
    with pytest.raises(InvalidArgument, match="level"):
        bench.admin.promote("g", level=19)
    with pytest.raises(InvalidArgument, match="since"):
        bench.admin.promote("g", since=1.0)
    with pytest.raises(GroupNotFound):
        bench.admin.promote("nobody")


def test_purging_what_is_ready_takes_both_lanes_and_nothing_else(bench: Bench) -> None:
    bench.group()
    bench.dead_letter("dead")
    waiting(bench, "retry", delay_ms=1)
    bench.admin.promote("g")
    waiting(bench, "waits")
    bench.publish("ready")
    assert bench.admin.purge("g", all=True, state="ready", dry_run=True) == 2
    assert bench.admin.purge("g", all=True, state="ready") == 2
    assert bench.numbers() == (0, 0, 0, 1, 1)
    assert bench.stored() == 2
    assert bench.admin.audit()[0].arguments == {"group": "g", "state": "ready", "all": True}


def test_purging_some_of_a_long_list_keeps_the_others_in_order(bench: Bench) -> None:
    bench.group()
    ids = bench.client.publish_many("t", range(1300))
    chosen = [ids[0], ids[3], ids[700], ids[1299]]
    assert bench.admin.purge("g", ids=chosen, state="ready", dry_run=True) == 4
    assert bench.admin.purge("g", ids=chosen, state="ready") == 4
    rest = [str(id_) for id_ in ids if id_ not in set(chosen)]
    assert [id_.decode() for id_ in bench.redis.lrange(bench.keys().ready, 0, -1)] == rest
    assert bench.stored() == 1296


def test_purging_what_waits_by_its_error(bench: Bench) -> None:
    bench.group()
    waiting(bench, "a", "b")
    waiting(bench, "c", reason="other")
    assert bench.admin.purge("g", error="boom", state="waiting_retry", dry_run=True) == 2
    assert bench.admin.purge("g", error="boom", state="waiting_retry") == 2
    assert bench.numbers() == (0, 0, 0, 1, 0)
    assert bench.admin.purge("g", all=True, state="waiting_retry") == 1
    assert bench.stored() == 0


def test_purging_is_for_one_group_and_one_topic(bench: Bench) -> None:
    bench.group("g", "t", "u")
    bench.group("h", "t")
    bench.publish(1)
    bench.publish(2, topic="u")
    assert bench.admin.purge("g", topic="t", state="ready") == 1
    assert bench.numbers("g", "u") == (1, 0, 0, 0, 0)
    assert bench.numbers("h", "t") == (1, 0, 0, 0, 0)
    assert (bench.stored("t"), bench.stored("u")) == (1, 1)


def test_dead_letters_are_what_purge_means_by_default(bench: Bench) -> None:
    bench.group()
    bench.dead_letter("a", "b")
    bench.publish("ready")
    assert bench.admin.purge("g", all=True) == 2
    assert bench.numbers() == (1, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({}, "all=True"),
        ({"all": True, "state": "inflight"}, "'inflight'"),
        ({"since": 1.0, "state": "ready"}, "since and before"),
    ],
)
def test_what_purge_does_not_take_is_refused(
    bench: Bench, given: dict[str, object], match: str
) -> None:
    bench.group()
    bench.publish(1)
    with pytest.raises(InvalidArgument, match=match):
        bench.admin.purge("g", **given)  # type: ignore[arg-type]
    assert bench.numbers() == (1, 0, 0, 0, 0)


def test_a_reset_skips_what_waits_and_keeps_what_runs_or_is_dead(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.dead_letter("dead")
    waiting(bench, "waits")
    bench.publish("runs")
    running = bench.lease()
    bench.publish("ready")
    assert bench.admin.reset("g", dry_run=True) == 2
    assert bench.admin.reset("g", to="latest") == 2
    assert bench.numbers("g") == (0, 0, 1, 0, 1)
    assert bench.numbers("h")[0] == 4
    bench.succeed(running)
    (sent,) = bench.publish("new")
    assert [receipt.id for receipt in bench.lease()] == [sent]
    assert bench.admin.audit()[0].counts == {"messages": 2}


def test_a_reset_to_the_earliest_gives_what_is_still_stored_once(bench: Bench) -> None:
    bench.group("g")
    (old,) = bench.publish("before h")
    bench.group("h")
    done, open_ = bench.publish("done", "open")
    receipts = {receipt.id: receipt for receipt in bench.lease(group="h")}
    bench.succeed([receipts[done]], group="h")
    assert bench.admin.reset("h", to="earliest", dry_run=True) == 2
    assert bench.admin.reset("h", to="earliest") == 2
    assert bench.admin.reset("h", to="earliest") == 0
    assert bench.numbers("h") == (2, 0, 1, 0, 0)
    again = bench.lease(group="h")
    assert [receipt.id for receipt in again] == [old, done]
    bench.succeed([*again, receipts[open_]], group="h")
    assert (bench.numbers("h"), bench.numbers("g"), bench.stored()) == (
        (0,) * 5,
        (3, 0, 0, 0, 0),
        3,
    )
    entry = bench.admin.audit()[0]
    assert (entry.verb, entry.arguments) == ("reset", {"group": "h", "to": "earliest"})


def test_a_reset_to_the_earliest_of_a_group_that_is_alone_gives_nothing(bench: Bench) -> None:
    bench.group("g")
    bench.publish("a")
    bench.succeed(bench.lease())
    bench.publish("b")
    assert bench.admin.reset("g", to="earliest", dry_run=True) == 0
    assert bench.admin.reset("g", to="earliest") == 0
    assert bench.numbers("g") == (1, 0, 0, 0, 0)


def test_a_later_group_starts_with_what_is_stored_on_request(bench: Bench) -> None:
    bench.client.admin.create_topic("t", partitions=3)
    bench.group("g")
    old = set(bench.client.publish_many("t", range(40)))
    bench.group("h", start="earliest")
    bench.group("late")
    new = set(bench.publish("new"))
    assert bench.numbers("h")[0] == 41
    assert bench.numbers("late")[0] == 1
    found = {r.id for number in range(3) for r in bench.lease(group="h", partition=number)}
    assert found == old | new
    bench.group("h", start="earliest")  # it is no new group any more
    assert bench.numbers("h") == (0, 0, 41, 0, 0)


def cut_off(bench: Bench, operation: Operation[Any], stop: int) -> bool:
    """Perform so many steps of an operation; answers whether it was cut before its end."""
    result: Any = None
    for _ in range(stop):
        try:
            step = operation.send(result)
        except StopIteration:
            return False
        assert not isinstance(step, Block | Each | Pause)
        store = parts_of(bench.client).store
        result = store.run(step) if isinstance(step, Command) else [store.run(c) for c in step]
    return True


def test_a_start_that_was_cut_off_anywhere_is_completed_by_the_next_one(bench: Bench) -> None:
    bench.client.admin.create_topic("t", partitions=2)
    bench.group("g")
    ids = set(bench.client.publish_many("t", range(6)))
    stop, cut = 0, True
    while cut:
        stop += 3
        join = parts_of(bench.client).catalog.join("h", "push", ["t"], start="earliest")
        cut = cut_off(bench, join, stop)
        early = [r.id for part in range(2) for r in bench.lease(group="h", partition=part)]
        assert set(early) in (set(), ids), "a group is paused until it has everything"
        bench.group("h", start="earliest")
        late = [r.id for part in range(2) for r in bench.lease(group="h", partition=part)]
        assert (len(early + late), set(early + late)) == (len(ids), ids)
        assert bench.admin.group("h").paused is False
        bench.admin.delete_group("h")
    assert stop > 100
    assert bench.numbers("g") == (6, 0, 0, 0, 0)


def test_a_start_waits_for_no_transaction_however_many_are_open(bench: Bench) -> None:
    bench.client.admin.create_topic("t")
    bench.group("g")
    (stored,) = bench.publish("stored")
    operation = parts_of(bench.client).catalog.join("h", "push", ["t"], start="earliest")
    halves: list[str] = []
    with bench.client.transaction("t") as tx:
        step = next(operation)
        while True:
            assert not isinstance(step, Block | Each | Pause)
            commands = [step] if isinstance(step, Command) else step
            if any(command.verb == "backfill_check" for command in commands):
                halves.append(tx.publish("half"))
            result = [parts_of(bench.client).store.run(command) for command in commands]
            try:
                step = operation.send(result[0] if isinstance(step, Command) else result)
            except StopIteration:
                break
        assert [receipt.id for receipt in bench.lease(group="h")] == [stored]
    assert len(halves) == 1
    assert [receipt.id for receipt in bench.lease(group="h")] == halves


def test_an_unfinished_start_is_completed_whatever_the_next_start_asks_for(bench: Bench) -> None:
    bench.group("g")
    bench.publish("a", "b")
    cut_off(bench, parts_of(bench.client).catalog.join("h", "push", ["t"], start="earliest"), 30)
    assert bench.lease(group="h") == []
    bench.group("h")
    assert bench.numbers("h") == (2, 0, 0, 0, 0)
    assert len(bench.lease(group="h")) == 2


def test_a_group_that_takes_only_some_tags_cannot_begin_with_what_is_stored(bench: Bench) -> None:
    bench.group("g")
    bench.publish("a", tag="x")
    with pytest.raises(InvalidArgument, match="takes only tags 'x' of topic 't'"):
        bench.group("h", start="earliest", tags="x")
    assert [group.name for group in bench.admin.groups()] == ["g"]
    bench.group("h", tags="x")
    with pytest.raises(InvalidArgument, match="given unfiltered"):
        bench.admin.reset("h", to="earliest")
    assert bench.numbers("h") == (0, 0, 0, 0, 0)
    bench.group("h", start="earliest")  # it is subscribed already, and begins nowhere anew


def test_a_reset_to_anything_else_is_refused(bench: Bench) -> None:
    bench.group()
    with pytest.raises(InvalidArgument, match="'yesterday'"):
        bench.admin.reset("g", to="yesterday")


def test_a_dry_run_changes_nothing_and_leaves_no_audit_record(bench: Bench) -> None:
    bench.group()
    bench.dead_letter("dead")
    waiting(bench, "waits")
    bench.publish("ready")
    before = bench.numbers()
    admin = bench.admin
    runs: list[Callable[[], int | MessageId]] = [
        lambda: admin.promote("g", dry_run=True),
        lambda: admin.purge("g", all=True, dry_run=True),
        lambda: admin.redrive("g", all=True, dry_run=True),
        lambda: admin.reset("g", dry_run=True) - 1,
        lambda: admin.unsubscribe("g", "t", dry_run=True) - 2,
        lambda: admin.delete_group("g", dry_run=True) - 2,
    ]
    assert [run() for run in runs] == [1] * 6
    assert admin.delete_topic("t", force=True, dry_run=True) == 3
    assert bench.numbers() == before
    assert bench.verbs() == []
