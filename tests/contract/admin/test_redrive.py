"""redrive with a rate and canaries, and export."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from rqretry.core.errors import InvalidArgument
from rqretry.core.receipt import Receipt
from tests.contract.admin.bench import Bench


@contextmanager
def consuming(bench: Bench, handle: Callable[[list[Receipt]], None]) -> Iterator[None]:
    """A thread that leases and handles until the block ends."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                receipts = bench.lease()
                if receipts:
                    handle(receipts)
                else:
                    time.sleep(0.005)
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
    assert not errors, errors


def test_a_rate_spreads_due_times_so_that_nobody_has_to_wait(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(*range(5))
    report = bench.admin.redrive("g", all=True, rate="2/s")
    assert (report, report.stopped, report.matched) == (5, False, 5)
    assert bench.numbers()[4] == 0
    keys = bench.keys()
    due = [
        score for key in keys.levels for _, score in bench.redis.zrange(key, 0, -1, withscores=True)
    ]
    assert bench.redis.llen(keys.ready) == 1
    steps = [later - earlier for earlier, later in pairwise(due)]
    assert steps == [500.0, 500.0, 500.0]


def test_a_rate_goes_on_over_all_partitions(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=3)
    bench.group()
    bench.publish(*range(9))
    for number in range(3):
        bench.fail(bench.lease(partition=number), level=-1, partition=number)
    assert bench.admin.redrive("g", all=True, rate=1) == 9
    due = sorted(
        round(score / 1000)
        for number in range(3)
        for key in bench.keys(partition=number).levels
        for _, score in bench.redis.zrange(key, 0, -1, withscores=True)
    )
    assert len(due) == 8
    assert due[-1] - due[0] == 7


@pytest.mark.parametrize("rate", ["fast", 0, -1, "0/s", "5/d", True, float("inf")])
def test_what_is_no_rate_is_refused(bench: Bench, rate: object) -> None:
    bench.group()
    bench.dead_letter(1)
    with pytest.raises(InvalidArgument, match="rate"):
        bench.admin.redrive("g", all=True, rate=rate)  # type: ignore[arg-type]
    assert bench.numbers()[4] == 1


@pytest.mark.parametrize("rate", ["0.5/h", 1e-300, 5e-324])
def test_a_rate_that_goes_on_for_too_long_is_refused_before_anything_is_sent(
    bench: Bench, rate: float | str
) -> None:
    bench.group()
    bench.dead_letter(*range(500))
    for dry_run in (True, False):
        with pytest.raises(InvalidArgument, match="sends the last of 500 back later than in 40 d"):
            bench.admin.redrive("g", all=True, rate=rate, dry_run=dry_run)
    assert bench.numbers()[4] == 500
    with pytest.raises(InvalidArgument, match="canary_timeout"):
        bench.admin.redrive("g", all=True, canary=1, canary_timeout=1e308)
    assert bench.numbers()[4] == 500


@pytest.mark.parametrize(
    "condition", [{"error": ""}, {"fingerprint": ""}, {"all": "no"}, {"error": 5}, {"ids": 5}]
)
def test_a_condition_that_is_empty_or_of_another_kind_selects_nothing(
    bench: Bench, condition: dict[str, Any]
) -> None:
    bench.group()
    bench.dead_letter("a", "b")
    for verb in (bench.admin.purge, bench.admin.redrive, bench.admin.dead_letters):
        with pytest.raises(InvalidArgument, match=f"^{next(iter(condition))}"):
            verb("g", **condition)
    assert bench.numbers()[4] == 2


def test_canaries_that_succeed_let_the_rest_go(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(*range(10))
    with consuming(bench, bench.succeed):
        report = bench.admin.redrive("g", all=True, canary=3)
    assert (report, report.canaries, report.failed, report.stopped) == (10, 3, 0, False)
    steps = [entry.arguments.get("step") for entry in reversed(bench.admin.audit())]
    assert steps == ["canary", None]
    assert [entry.counts["sent"] for entry in reversed(bench.admin.audit())] == [3, 7]


def test_a_canary_that_fails_again_with_its_error_stops_the_redrive(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(*range(10))
    with consuming(bench, lambda receipts: bench.fail(receipts, "boom", delay_ms=3_600_000)):
        report = bench.admin.redrive("g", all=True, canary=2, rate="50/s")
    assert (report, report.matched, report.stopped) == (2, 10, True)
    assert "failed again: boom" in report.reason
    assert bench.numbers()[4] == 8
    last, first = bench.admin.audit()
    assert first.arguments["step"] == "canary"
    assert last.arguments["step"].startswith("stopped: ")
    assert last.counts == {"failed": 1, "left": 8}


def test_a_canary_that_dies_again_stops_the_redrive_too(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(*range(4))
    with consuming(bench, lambda receipts: bench.fail(receipts, "boom", level=-1)):
        report = bench.admin.redrive("g", all=True, canary=1)
    assert (report, report.stopped) == (1, True)
    assert bench.numbers()[4] == 4


def test_a_canary_that_fails_with_another_error_does_not_stop_it(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(*range(4))

    def handle(receipts: list[Receipt]) -> None:
        bench.fail(receipts, "something else", delay_ms=3_600_000)

    with consuming(bench, handle):
        report = bench.admin.redrive("g", all=True, canary=2)
    assert (report, report.failed, report.stopped) == (4, 2, False)


def test_canaries_that_nobody_handles_stop_it_in_the_end(bench: Bench) -> None:
    bench.group()
    bench.dead_letter(1, 2, 3)
    report = bench.admin.redrive("g", all=True, canary=1, canary_timeout=0.4)
    assert (report, report.stopped) == (1, True)
    assert "1 of 1 canaries were not done in time" in report.reason
    assert bench.numbers() == (1, 0, 0, 0, 2)


def test_a_canary_is_done_when_this_group_has_committed_it(bench: Bench) -> None:
    bench.group("g")
    bench.group("h")
    bench.dead_letter(1, 2)
    with consuming(bench, bench.succeed):
        report = bench.admin.redrive("g", all=True, canary=1)
    assert (report, report.stopped) == (2, False)
    assert bench.numbers("h")[0] == 2


def test_a_redriven_message_starts_again_also_with_a_rate(bench: Bench) -> None:
    bench.group()
    (sent,) = bench.dead_letter(1)
    bench.admin.redrive("g", all=True, rate="10/s")
    assert [receipt.id for receipt in bench.lease()] == [sent]
    assert bench.admin.inflight("g")[0].attempt == 1


def test_one_kind_of_a_thousand_is_redriven(bench: Bench) -> None:
    bench.group()
    bench.client.publish_many("t", range(300))
    for reason in ("one", "two", "three"):
        bench.fail(bench.lease(100), reason, level=-1)
    kinds = {record.error: record.fingerprint for record in bench.admin.dead_letters("g")}
    assert bench.admin.redrive("g", fingerprint=kinds["two"]) == 100
    assert {record.error for record in bench.admin.dead_letters("g")} == {"one", "three"}
    assert bench.admin.audit()[0].arguments["fingerprint"] == kinds["two"]


def test_an_export_is_json_with_bodies_of_every_kind(bench: Bench) -> None:
    bench.group()
    bench.dead_letter({"n": 1}, b"\x00raw", None)
    rows = json.loads(json.dumps(bench.admin.export("g")))
    by_body = [{k: row[k] for k in ("body", "body_base64") if k in row} for row in rows]
    assert sorted(map(json.dumps, by_body)) == sorted(
        map(
            json.dumps,
            [
                {"body": {"n": 1}},
                {"body_base64": base64.b64encode(b"\x00raw").decode()},
                {"body": None},
            ],
        )
    )
    assert {row["error"] for row in rows} == {"boom"}
    assert len(rows[0]["errors"]) == 1


def test_an_export_of_a_body_that_cannot_be_read_has_its_bytes(bench: Bench) -> None:
    bench.group()
    (sent,) = bench.dead_letter(1)
    bench.redis.hset("rqretry:test:{t:0}:bodies", sent, b"\xc1garbage")
    (row,) = bench.admin.export("g", ids=[sent])
    assert base64.b64decode(row["body_base64"]) == b"\xc1garbage"
