"""Which tasks read which parts of the history: few where little is new, the same when run again."""

from rqretry.spark.history_ranges import Span, Spans, plan_batch, plan_stream
from rqretry.spark.position import Position

KIB = 1024


def part(topic: str, number: int, first: int, last: int) -> Span:
    return Span(topic, number, Position(1000, first), Position(2000, last))


def topics_of(tasks: list[Spans]) -> list[list[str]]:
    return [sorted({span.topic for span in task.spans}) for task in tasks]


def test_a_quiet_system_takes_few_tasks_and_a_topic_is_in_one() -> None:
    spans = [part(f"t{n:02d}", number, 7, 17) for n in range(50) for number in range(4)]
    tasks = plan_stream(spans, None)
    assert len(tasks) == 2  # 1,000 entries each
    assert [span for task in tasks for span in task.spans] == spans
    found = [topic for topics in topics_of(tasks) for topic in topics]
    assert len(found) == len(set(found)) == 50


def test_a_topic_that_would_not_fit_with_others_begins_a_task() -> None:
    spans = [part("a", 0, 1, 700), *(part("b", number, 1, 150) for number in range(4))]
    assert topics_of(plan_stream(spans, None)) == [["a"], ["b"]]


def test_what_is_large_or_of_unknown_size_is_read_alone() -> None:
    large, small = part("a", 0, 1, 5000), [part("a", number, 1, 3) for number in (1, 2)]
    from_time = Span("b", 0, Position(1000), Position(2000, 9))
    tasks = plan_stream([large, *small, from_time], None)
    assert [task.spans for task in tasks] == [[large], small, [from_time]]


def test_a_new_partition_counts_from_its_first_entry() -> None:
    new = Span("a", 0, Position(), Position(2000, 5))
    within = Span("a", 1, Position(2000, 5, 3), Position(2000, 5, 9))
    assert (new.entries, within.entries) == (4, 1)
    assert [task.spans for task in plan_stream([new, within], None)] == [[new, within]]


def test_nothing_is_shared_where_more_tasks_are_wanted() -> None:
    spans = [part("a", number, 1, 5) for number in range(3)]
    assert [len(task.spans) for task in plan_stream(spans, 3)] == [1, 1, 1]
    assert len(plan_stream(spans, 6)) == 6
    assert len(plan_batch(dict.fromkeys(spans, 0.0), 2)) == 3


def test_nothing_is_read_where_nothing_is_new() -> None:
    old = Span("a", 0, Position(2000, 5), Position(2000, 5))
    assert plan_stream([old], None) == plan_batch({old: 0.0}, None) == []


def test_a_batch_cuts_what_is_large_and_shares_what_is_small() -> None:
    small = {part("a", number, 1, 5): 200.0 * KIB for number in range(4)}
    large = part("b", 0, 1, 5)
    tasks = plan_batch({**small, large: 8192.0 * KIB}, None)
    assert topics_of(tasks) == [["a"], ["b"], ["b"]]
    assert tasks[1].spans[0].end == tasks[2].spans[0].start == Position(1500)
