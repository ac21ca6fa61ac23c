"""promote, purge by state and reset: what is not dead yet."""

from collections.abc import Callable

import pytest

from rqretry import DeadLetterFilter
from rqretry.errors import GroupNotFound, InvalidArgument
from rqretry.ids import MessageId
from tests.admin.bench import Bench

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
    assert [(receipt.id, receipt.lease_no) for receipt in bench.lease()] == [(i, 2) for i in ids]
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
    bench.bury("dead")
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
    bench.bury("a", "b")
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
    bench.bury("dead")
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


def test_a_reset_to_anything_else_is_refused(bench: Bench) -> None:
    bench.group()
    with pytest.raises(InvalidArgument, match="'yesterday'"):
        bench.admin.reset("g", to="yesterday")


def test_a_dry_run_changes_nothing_and_leaves_no_audit_record(bench: Bench) -> None:
    bench.group()
    bench.bury("dead")
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
