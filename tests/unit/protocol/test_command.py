"""Operations that are performed side by side, without any server."""

from typing import Any

import pytest

from rqretry.core.errors import RqretryError
from rqretry.protocol.command import Block, Command, Each, Operation, Pause, query, side_by_side


def ask(name: str) -> Command[Any]:
    return query(str, name)


def performed(operation: Operation[Any], rounds: list[list[str]]) -> Any:
    """Answer calls with their own name, and those named "no" with an error."""
    result: Any = None
    while True:
        try:
            step = operation.send(result)
        except StopIteration as end:
            return end.value
        if isinstance(step, Pause | Block):
            rounds.append([type(step).__name__])
            result = None
            continue
        assert isinstance(step, Each)
        names = [str(command.arguments[0]) for command in step.commands]
        rounds.append(names)
        result = [RqretryError(name) if name == "no" else name for name in names]


def one(name: str, calls: int) -> Operation[list[str]]:
    found: list[str] = []
    while len(found) < calls:
        found += [(yield ask(f"{name}{len(found)}"))]
    return found


def several() -> Operation[Any]:
    many = yield [ask("x"), ask("y")]
    yield Pause(1.0)
    each = yield Each([ask("z"), ask("no")])
    return [*many, *map(str, each)]


def forgiving() -> Operation[str]:
    try:
        yield [ask("p"), ask("no")]
    except RqretryError:
        return (yield ask("q"))  # type: ignore[no-any-return]
    return "not reached"


def refused() -> Operation[str]:
    yield ask("no")
    return "not reached"


def test_calls_of_operations_share_round_trips() -> None:
    rounds: list[list[str]] = []
    results = performed(side_by_side([one("a", 2), one("b", 1), one("c", 0)]), rounds)
    assert results == [["a0", "a1"], ["b0"], []]
    assert rounds == [["a0", "b0"], ["a1"]]


def test_each_kind_of_step_is_answered_as_if_it_were_alone() -> None:
    rounds: list[list[str]] = []
    results = performed(side_by_side([several(), forgiving()]), rounds)
    assert results == [["x", "y", "z", "no"], "q"]
    assert ["Pause"] in rounds
    assert ["x", "y", "p", "no"] in rounds


def test_they_can_be_nested() -> None:
    rounds: list[list[str]] = []
    inner = [side_by_side([one(f"{name}{n}", 1) for n in range(2)]) for name in "ab"]
    assert performed(side_by_side(inner), rounds) == [
        [["a00"], ["a10"]],
        [["b00"], ["b10"]],
    ]
    assert rounds == [["a00", "a10", "b00", "b10"]]


def test_an_error_ends_its_own_operation_and_is_raised_when_the_others_have_ended() -> None:
    rounds: list[list[str]] = []
    with pytest.raises(RqretryError, match="no"):
        performed(side_by_side([refused(), one("a", 3)]), rounds)
    assert rounds[-1] == ["a2"]


def test_many_are_sent_a_hundred_at_a_time() -> None:
    rounds: list[list[str]] = []
    results = performed(side_by_side([one(f"{n}-", 1) for n in range(250)]), rounds)
    assert [len(names) for names in rounds] == [100, 100, 50]
    assert results == [[f"{n}-0"] for n in range(250)]
