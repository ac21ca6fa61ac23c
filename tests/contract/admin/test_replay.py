"""reset to a time: what was consumed is delivered again, as far as it is kept."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rqretry.catalog import backfill
from rqretry.core.errors import InvalidArgument
from rqretry.core.parts import parts_of
from rqretry.core.start import check_start
from rqretry.protocol import operate
from rqretry.protocol.lease import succeed
from tests.contract.admin.bench import Bench

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def consume(bench: Bench, count: int, group: str = "g") -> list[str]:
    """Lease so many and commit them."""
    receipts = bench.lease(count, group=group)
    bench.succeed(receipts, group=group)
    return [receipt.id for receipt in receipts]


def test_a_group_goes_back_to_a_time(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.admin.set_topic("t", keep="24h")
    ids = bench.publish("a", "b")
    consume(bench, 2, group="g")
    consume(bench, 2, group="h")
    assert bench.stored() == 0
    assert bench.admin.reset("g", to=LONG_AGO, dry_run=True) == 2
    assert bench.admin.reset("g", to=LONG_AGO) == 2
    assert bench.admin.reset("g", to=LONG_AGO) == 0
    assert (bench.numbers("g"), bench.numbers("h")) == ((2, 0, 0, 0, 0), (0, 0, 0, 0, 0))
    entry = bench.admin.audit()[0]
    assert entry.arguments == {"group": "g", "to": "2020-01-01T00:00:00.000Z"}
    assert [event.event for event in bench.admin.message(ids[0]).timeline][-1] == "replay"
    assert sorted(consume(bench, 2, group="g")) == sorted(str(id_) for id_ in ids)
    (topic,) = bench.admin.stats("t").topics
    assert (topic.stored, topic.kept, topic.keep_s) == (0, 2, 86_400)
    assert 512 < topic.kept_bytes < 1024


def test_an_interrupted_replay_is_completed_and_repeats_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.group("g")
    bench.admin.set_topic("t", keep="24h")
    ids = [str(id_) for id_ in bench.publish(*"abcd")]
    for _ in ids:
        consume(bench, 1)

    def one(*args: object, **options: object) -> object:
        return replay(*args, **options, limit=1)  # type: ignore[arg-type]

    replay = operate.replay
    monkeypatch.setattr(operate, "replay", one)
    steps = backfill.Backfill(parts_of(bench.client).catalog.store).replay("g", 0)
    answer: Any = None
    for _ in range(8):  # cut off after some pages
        step: Any = steps.send(answer)
        answer = parts_of(bench.client).store.run(step)
        if bench.numbers()[0] == 2:
            break
    monkeypatch.undo()
    assert consume(bench, 2) == ids[:2]
    assert bench.admin.reset("g", to=LONG_AGO) == 2
    assert consume(bench, 9) == ids[2:]
    client = bench.client
    assert parts_of(client).store.perform(parts_of(client).catalog.groups.get("g")).replaying == ()


def test_a_replay_behind_an_interrupted_one_gives_both_what_they_are_about(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOffError(Exception):
        pass

    def cut(*_: object) -> None:
        raise CutOffError

    bench.group("g")
    bench.admin.set_topic("t", keep="24h")
    earlier = [str(id_) for id_ in bench.publish("a", "b")]
    consume(bench, 2)
    monkeypatch.setattr(backfill, "replay_all", cut)
    with pytest.raises(CutOffError):
        bench.admin.reset("g", to=LONG_AGO)
    monkeypatch.undo()
    seconds, micros = bench.redis.time()
    while bench.redis.time() < (seconds, micros + 5000):
        pass
    since = seconds + (micros + 3000) / 1_000_000
    later = [str(id_) for id_ in bench.publish("c", "d")]
    consume(bench, 2)
    assert bench.admin.reset("g", to=since) == 4
    assert sorted(consume(bench, 9)) == sorted([*earlier, *later])


def test_a_later_group_begins_in_the_past(bench: Bench) -> None:
    bench.group("g")
    bench.admin.set_topic("t", keep="24h")
    done = [str(id_) for id_ in bench.publish("done")]
    consume(bench, 1)
    open_ = [str(id_) for id_ in bench.publish("open")]
    bench.group("h", start=check_start(LONG_AGO))
    assert sorted(consume(bench, 9, group="h")) == sorted(done + open_)
    bench.group("h", start=check_start(LONG_AGO))
    bench.group("i", start="earliest")
    assert consume(bench, 9, group="i") == open_


def test_a_later_group_gets_what_is_consumed_while_it_catches_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.group("g")
    bench.admin.set_topic("t", keep="24h")
    ids = [str(id_) for id_ in bench.publish("a", "b")]
    catch_up, done = backfill.catch_up, []

    def slowly(*args: Any) -> Any:
        done.extend(consume(bench, 1))
        given = yield from catch_up(*args)
        return given

    monkeypatch.setattr(backfill, "catch_up", slowly)
    bench.group("h", start=check_start(LONG_AGO))
    assert len(done) == 1
    assert sorted(consume(bench, 9, group="h")) == sorted(ids)


def test_what_would_have_no_effect_is_refused(bench: Bench) -> None:
    bench.group("g")
    with pytest.raises(InvalidArgument, match="no topic of it keeps what was consumed"):
        bench.admin.reset("g", to=LONG_AGO)
    with pytest.raises(InvalidArgument, match="has no time zone"):
        bench.admin.reset("g", to=datetime(2020, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(InvalidArgument, match="needs a time for which it is kept"):
        bench.admin.set_topic("t", keep_bytes=10**6)
    with pytest.raises(InvalidArgument, match="keep"):
        bench.admin.set_topic("t", keep="1s")


def test_what_is_kept_goes_with_its_topic_and_its_group(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.admin.set_topic("t", keep="24h")
    bench.publish("a", "b")
    consume(bench, 2, group="g")
    consume(bench, 2, group="h")
    bench.admin.delete_group("g")
    assert bench.redis.keys("*group:g:*") == []
    assert bench.admin.reset("h", to=LONG_AGO) == 2
    bench.admin.delete_topic("t", force=True)
    left = bench.redis.keys("*{t:*")
    assert [key for key in left if b":lane:" not in key] == []


def test_new_partitions_keep_what_is_consumed_too(bench: Bench) -> None:
    bench.group("g")
    bench.admin.set_topic("t", keep="24h", keep_bytes=10**6)
    bench.admin.set_topic("t", partitions=4)
    keys = [bench.keys("g", partition=number).partition.meta for number in range(4)]
    assert {bench.redis.hget(key, "keep_ms") for key in keys} == {b"86400000"}
    assert {bench.redis.hget(key, "keep_bytes") for key in keys} == {b"250000"}
    bench.publish(*range(20))
    for number in range(4):
        receipts = bench.lease(group="g", partition=number)
        place = bench.keys("g", partition=number)
        verdicts = parts_of(bench.client).store.run(succeed(place, receipts, worker="w"))
        assert set(verdicts) <= {b"OK"}
    assert bench.admin.reset("g", to=LONG_AGO) == 20


def test_what_is_purged_or_dead_is_not_replayed(bench: Bench) -> None:
    bench.group("g")
    bench.admin.set_topic("t", keep="24h")
    bench.dead_letter("dead")
    bench.publish("purged")
    bench.admin.purge("g", state="ready", all=True)
    assert bench.admin.reset("g", to=LONG_AGO) == 0
    assert bench.numbers() == (0, 0, 0, 0, 1)
