"""What is due is moved by one operation; here its calls are answered by hand, without a server."""

from collections.abc import Sequence
from typing import Any

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import PUSH, TopicRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS
from rqretry.core.errors import StoreUnavailable
from rqretry.core.route import Route
from rqretry.maintenance.due import Delivered, Due, Maintenance, Moved
from rqretry.protocol.command import MAX_BATCH, Each
from rqretry.protocol.maintain import Expired, Promoted

TOPIC = TopicRecord("t", 2, version=3).with_group("g", PUSH)


def catalog_that_knows(record: TopicRecord = TOPIC) -> Catalog:
    catalog = Catalog("test")
    catalog.store.levels = DEFAULT_LEVELS
    catalog.store.keep(record)
    return catalog


def answered(operation: Any, answers: Sequence[Any]) -> tuple[Any, list[list[str]]]:
    """Perform an operation with these answers; its result, and the verbs of each step."""
    rest = list(answers)
    verbs: list[list[str]] = []
    answer: Any = None
    while True:
        try:
            step = operation.send(answer)
        except StopIteration as end:
            assert not rest, "it ended before its last answer"
            return end.value, verbs
        verbs.append([call.verb for call in (step.commands if isinstance(step, Each) else [step])])
        answer = rest.pop(0)


def test_all_places_are_moved_in_one_round_trip() -> None:
    catalog = catalog_that_knows()
    keys = [catalog.group_keys("t", number, "g") for number in range(2)]
    moved, verbs = answered(
        Maintenance(catalog.topics, "w").move([Due(keys[0]), Due(keys[1], promote=False)]),
        [[Promoted(1000, 2, 70), Expired(held=False, now_ms=1001, moved=3, dead=()),
          Expired(held=True, now_ms=1002, moved=400)]],
    )  # fmt: skip
    assert verbs == [["promote", "expire", "expire"]]
    assert moved == [
        Moved(now_ms=1001, promoted=2, next_due_ms=70, expired=3),
        Moved(now_ms=1002, held_ms=400),
    ]


def test_an_error_that_is_an_answer_is_the_result_of_its_place_alone() -> None:
    catalog, away = catalog_that_knows(), StoreUnavailable("away")
    keys = [catalog.group_keys("t", number, "g") for number in range(2)]
    moved, _ = answered(
        Maintenance(catalog.topics, "w").move([Due(key, expire=False) for key in keys]),
        [[away, Promoted(1000, MAX_BATCH, 0)]],
    )
    assert [one.error for one in moved] == [away, None]
    assert [one.more for one in moved] == [False, True]


def test_where_nothing_is_due_nothing_is_called() -> None:
    catalog = catalog_that_knows()
    keys = catalog.group_keys("t", 0, "g")
    nothing = Due(keys, promote=False, expire=False)
    assert answered(Maintenance(catalog.topics, "w").move([nothing]), []) == ([Moved()], [])


def test_the_clock_of_the_caller_goes_with_an_expire() -> None:
    catalog = catalog_that_knows()
    due = Due(catalog.group_keys("t", 0, "g"), promote=False, expected_ms=5250)
    operation = Maintenance(catalog.topics, "w", chance=lambda: 0.25).move([due])
    step: Any = next(operation)
    (call,) = step.commands
    assert list(call.args[3:]) == [5250, due.hold_ms, 0.25]


def test_a_delivery_that_learns_of_a_newer_route_is_repeated_for_that_partition_alone() -> None:
    catalog = catalog_that_knows()
    partitions = [catalog.partition("t", number) for number in range(2)]
    newer = Route(version=9, partitions=2, groups=TOPIC.route.groups)
    delivered, verbs = answered(
        Maintenance(catalog.topics, "w").deliver(partitions),
        [[("OK", 4, None, None), ("STALE", 0, None, newer)], [("OK", 5, 80, None)]],
    )
    assert verbs == [["deliver", "deliver"], ["deliver"]]
    assert delivered == [Delivered(4, None), Delivered(5, 80)]
    assert catalog.topics.route("t", 1) == newer


def test_a_topic_that_was_deleted_has_nothing_to_deliver() -> None:
    catalog = catalog_that_knows()
    catalog.store.forget("t")
    delivered, verbs = answered(
        Maintenance(catalog.topics, "w").deliver([catalog.partition("t", 0)]), [""]
    )
    assert (delivered, verbs) == ([Delivered()], [["read"]])
