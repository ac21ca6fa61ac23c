"""What a verb on dead letters costs follows what it selects, not how many there are."""

from typing import Any, TypeVar

import pytest

from rqretry.admin import dead_letters, promote_purge_reset
from rqretry.admin.views import Cluster
from rqretry.core.failure_record import describe_cause
from rqretry.core.parts import parts_of
from rqretry.protocol.command import MAX_BATCH, Command, Each, Operation, Step
from rqretry.protocol.lease import Failure, fail
from tests.contract.admin.bench import Bench

T = TypeVar("T")

MANY = 3 * MAX_BATCH
FEW_CALLS = 5
VERBS = [dead_letters.dead_letters, dead_letters.redrive, promote_purge_reset.purge]


def fill(bench: Bench) -> list[str]:
    """Many dead letters of one error, and two of another one."""
    bench.group()
    ids: list[str] = []
    while len(ids) < MANY:
        ids += bench.dead_letter(*range(100))
    return [*ids, *bench.dead_letter("x", "y", reason="rare")]


def performed(bench: Bench, operation: Operation[T]) -> tuple[T, list[str]]:
    """What an operation returns, and the verbs that it called."""
    verbs: list[str] = []

    def watching() -> Operation[T]:
        answer: Any = None
        while True:
            try:
                step: Step = operation.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            step_commands = step.commands if isinstance(step, Each) else step
            commands = [step] if isinstance(step, Command) else list(step_commands)  # type: ignore[arg-type]
            verbs.extend(command.verb for command in commands)
            answer = yield step

    return parts_of(bench.client).store.perform(watching()), verbs


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_one_id_among_many_takes_five_calls(bench: Bench, verb: Any) -> None:
    *_, wanted = fill(bench)
    found, verbs = performed(bench, verb(parts_of(bench.admin).operations, "g", ids=[wanted]))
    assert len(verbs) <= FEW_CALLS
    assert (len(found) if isinstance(found, list) else found) == 1


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_one_fingerprint_among_many_reads_no_other(bench: Bench, verb: Any) -> None:
    fill(bench)
    kinds = parts_of(bench.client).store.perform(
        dead_letters.clusters(parts_of(bench.admin).operations, "g")
    )
    operation = verb(parts_of(bench.admin).operations, "g", fingerprint=kinds[-1].fingerprint)
    found, verbs = performed(bench, operation)
    assert verbs.count("dead_letters") <= 2
    assert (len(found) if isinstance(found, list) else found) == 2


def test_all_are_sent_back_page_by_page(bench: Bench) -> None:
    count = len(fill(bench))
    report, verbs = performed(
        bench, dead_letters.redrive(parts_of(bench.admin).operations, "g", all=True)
    )
    assert (report, report.matched, bench.numbers()[4]) == (count, count, 0)
    assert verbs.index("redrive") < verbs.index("dead_letters") + 3  # never more than two pages


def test_what_dies_again_meanwhile_is_not_sent_back_twice(bench: Bench) -> None:
    count = len(fill(bench))
    operation = dead_letters.redrive(parts_of(bench.admin).operations, "g", all=True)

    def dying() -> Operation[Any]:
        answer: Any = None
        while True:
            try:
                step: Step = operation.send(answer)
            except StopIteration as end:
                return end.value
            answer = yield step
            if isinstance(step, Command) and step.verb == "redrive":
                bench.fail(bench.lease(MAX_BATCH), level=-1)

    assert parts_of(bench.client).store.perform(dying()) == count
    assert bench.numbers()[4] == count


def test_the_errors_of_many_are_counted_in_one_call(bench: Bench) -> None:
    ids = fill(bench)
    listed = bench.admin.dead_letters("g", bodies=False)
    clusters: list[Cluster]
    clusters, verbs = performed(bench, dead_letters.clusters(parts_of(bench.admin).operations, "g"))
    assert verbs.count("dead_clusters") <= 2
    assert [cluster.count for cluster in clusters] == [len(ids) - 2, 2]
    for cluster in clusters:
        members = [each for each in listed if each.fingerprint == cluster.fingerprint]
        assert (cluster.first_ms, cluster.last_ms) == (
            members[0].dead_since_ms, members[-1].dead_since_ms
        )  # fmt: skip
        assert (cluster.sample_id, cluster.error) == (members[-1].id, members[-1].error)


def test_clusters_of_many_partitions_are_added_up(bench: Bench) -> None:
    bench.admin.create_topic("t", partitions=3)
    bench.group()
    bench.publish(*range(30))
    for partition in range(3):
        receipts = bench.lease(100, partition=partition)
        rows = [
            Failure(
                r,
                -1,
                "",
                0.5,
                "failure",
                describe_cause("failure", "odd" if n % 2 else "even", "w"),
            )
            for n, r in enumerate(receipts)
        ]
        parts_of(bench.client).store.run(
            fail(bench.keys(partition=partition), rows, worker="w", tracebacks={})
        )
    clusters = parts_of(bench.client).store.perform(
        dead_letters.clusters(parts_of(bench.admin).operations, "g")
    )
    listed = bench.admin.dead_letters("g")
    assert {cluster.fingerprint: cluster.count for cluster in clusters} == {
        kind: sum(each.fingerprint == kind for each in listed)
        for kind in {each.fingerprint for each in listed}
    }


def test_waiting_retries_are_looked_up_by_id(bench: Bench) -> None:
    bench.group()
    ids = bench.publish(*range(2 * MAX_BATCH))
    bench.fail([receipt for _ in range(10) for receipt in bench.lease(100)])
    context, promote = parts_of(bench.admin).operations, promote_purge_reset.promote
    moved, verbs = performed(bench, promote(context, "g", ids=[ids[7], "unknown"], error="boom"))
    assert (moved, verbs.count("scan_group"), bench.numbers()[1]) == (1, 0, 1)
    assert bench.admin.purge("g", ids=ids[8:10], state="waiting_retry", dry_run=True) == 2
    assert bench.admin.purge("g", ids=ids[8:10], state="waiting_retry") == 2
    assert bench.admin.purge("g", ids=ids[8:10], state="waiting_retry", error="other") == 0
