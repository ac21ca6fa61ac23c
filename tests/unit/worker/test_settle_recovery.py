"""What the history says of results in doubt, page by page."""

from typing import Any

import pytest

from rqretry.protocol.history import Kept
from rqretry.protocol.keys import partition_keys
from rqretry.protocol.lease import Failed
from rqretry.worker.settle_recovery import _PAGE, Recovered, Result, recover_results

KEYS = partition_keys("n", "t", 0).group("g", 18)
WHOLE, CUT = Kept("", 0, 0, None), Kept("5-0", 3, 0, None)

Page = list[tuple[str, dict[str, bytes]]]


def result(id_: str, attempt: int = 1, *, failed: bool = False) -> Result:
    return ("fail" if failed else "succeed"), id_, attempt


def entry(at_ms: int, verb: str, ids: str, notes: str = "", **other: str) -> Page:
    fields = {"e": verb, "g": "g", "w": "w", "i": ids, "d": notes, "b": "", **other}
    return [(f"{at_ms}-0", {name: text.encode() for name, text in fields.items()})]


def recovered(
    wanted: list[Result], *pages: Page, kept: Kept = WHOLE, since_ms: int = 50
) -> Recovered:
    """What is found in these pages, of which each is asked for; the last is the end of all."""
    asked = recover_results(KEYS, set(wanted), "w", since_ms)
    answers: list[Any] = [*pages, kept]
    step: Any = next(asked)
    while True:
        assert step.arguments[0] in ("XREVRANGE", "HMGET")
        try:
            step = asked.send(answers.pop(0))
        except StopIteration as end:
            found: Recovered = end.value
            return found


def test_a_result_is_known_by_verb_message_and_attempt() -> None:
    wanted = [result("a"), result("b", 2), result("c", failed=True), result("d", 3, failed=True)]
    page = [
        *entry(99, "fail", "c d", "1,W,3,12345 3,D"),
        *entry(98, "succeed", "x b", "1 2"),
        *entry(97, "succeed", "a"),
    ]
    found = recovered(wanted, page)
    assert found.whole
    assert found.taken == {
        ("succeed", "a", 1): Failed("OK"),
        ("succeed", "b", 2): Failed("OK"),
        ("fail", "c", 1): Failed("OK", attempt=1, level=3, due_ms=12345),
        ("fail", "d", 3): Failed("OK", dead=True, attempt=3),
    }


@pytest.mark.parametrize(
    "other",
    [
        entry(99, "succeed", "a", w="somebody else"),
        entry(99, "succeed", "a", g="another group"),
        entry(99, "succeed", "a", "2"),
        entry(99, "succeed", "b"),
        entry(99, "lease", "a", "1:1:0:0"),
        entry(99, "fail", "a", "1,D"),
        entry(49, "succeed", "a"),
    ],
    ids=["worker", "group", "attempt", "message", "verb", "result", "too early"],
)
def test_what_is_not_this_result_is_not_taken_for_it(other: Page) -> None:
    assert recovered([result("a")], other) == Recovered({}, whole=True)


def test_the_search_goes_back_page_by_page_to_the_first_call_and_no_further() -> None:
    page = [item for n in range(_PAGE) for item in entry(1000 - n, "lease", "z", "1:1:0:0")]
    mine, early = entry(60, "succeed", "a"), entry(49, "succeed", "b")
    assert recovered([result("a"), result("b")], page, [*mine, *early]).taken.keys() == {
        ("succeed", "a", 1)
    }


def test_a_history_that_does_not_reach_back_that_far_proves_nothing() -> None:
    late = entry(99, "lease", "a", "1:1:0:0")
    assert recovered([result("a")], late, kept=WHOLE).whole
    assert not recovered([result("a")], late, kept=CUT).whole
