"""What operators rely on: verbs on much that is dead, and versions side by side."""

from typing import Any

from tests.meta.mutation.case import Symbol, drops
from tests.meta.mutation.cases.common import case

MANY = "tests/contract/admin/test_many_dead_letters.py::"
COUNTS = "tests/lua/test_fingerprints.py::test_the_counts_are_exact_behind"


def reading_all(original: Any) -> Any:
    """Ids are looked for among all dead letters."""

    def made(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._rest = None

    return made


def all_at_once(original: Any) -> Any:
    """Everything is read before the first one is sent."""
    return lambda self, _count: original(self, 10**9)


CASES = (
    case("R35", "a dead letter is looked for among all", Symbol("DeadLetterPages.__init__", reading_all),
         f"{MANY}test_one_id_among_many_takes_five_calls"),
    case("R35", "all are read before the first is sent back", Symbol("DeadLettersInOrder.take", all_at_once),
         f"{MANY}test_all_are_sent_back_page_by_page"),
    case("R35", "what is sent back or purged stays counted", drops("ZREM", "fingerprints"), COUNTS),
    case("R35", "what dies is not counted", drops("ZADD", "fingerprints", "fail", "expire"), COUNTS),
)  # fmt: skip
