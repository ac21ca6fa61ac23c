"""What several cases are made of."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import (
    Case,
    Change,
    Constant,
    LuaCall,
    Make,
    Symbol,
    answers,
    drops,
)

PUSH = "tests/contract/conformance/test_push.py::"
SIMPLE = "tests/contract/conformance/test_simple.py::"
GROUPS = "tests/contract/conformance/test_groups.py::"
DEAD_LETTERS = "tests/contract/conformance/test_dead_letters.py::"
LIMITS = "tests/contract/conformance/test_limits.py::"
ORDERED = "tests/contract/integration/test_ordered.py::"
LADDER = "tests/contract/testing/test_ladder.py::"
WHOLE_LADDER = f"{LADDER}test_a_whole_ladder_takes_less_than_a_second"


def case(rule: str, broken: str, *parts: Change | str) -> Case:
    """A case of changes and, as text, of tests."""
    changes = tuple(part for part in parts if not isinstance(part, str))
    return Case(rule, broken, changes, tuple(part for part in parts if isinstance(part, str)))


def always(value: Any) -> Make:
    """A function that does nothing and answers this."""
    return lambda _: lambda *_args, **_options: value


def limit(name: str, value: str) -> Constant:
    """A limit with another value."""
    return Constant(f"core:{name}", value)


def takes(check: str, change: Callable[[Any], Any]) -> Symbol:
    """A check that looks at something else than what it lets pass."""

    def make(original: Any) -> Any:
        def checked(value: Any) -> Any:
            original(change(value))
            return value

        return checked

    return Symbol(f"core:{check}", make)


def refuses(check: str, character: str) -> Symbol:
    """A check that refuses a character which is allowed."""

    def make(original: Any) -> Any:
        return lambda value: original(value.replace(character, "/"))

    return Symbol(f"core:{check}", make)


def command(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Symbol:
    """A command that is made with other named arguments."""

    def make(original: Any) -> Any:
        return lambda *args, **named: original(*args, **{**named, **change(named)})

    return Symbol(f"protocol:{name}", make)


def decoded(name: str, change: Callable[[Any], Any]) -> Symbol:
    """A command whose answer is read as something else."""

    def make(original: Any) -> Any:
        def built(*args: Any, **named: Any) -> Any:
            made = original(*args, **named)
            return replace(made, decode=lambda reply: change(made.decode(reply)))

        return built

    return Symbol(f"protocol:{name}", make)


def failing(change: Callable[[Any], Any]) -> Symbol:
    """Failures that are reported as something else."""

    def make(original: Any) -> Any:
        return lambda keys, failures, **named: original(keys, [*map(change, failures)], **named)

    return Symbol("protocol:fail", make)


def group_record(change: Callable[[Any], dict[str, Any]]) -> Symbol:
    """A record of a group that is read with other fields."""

    def make(original: Any) -> Any:
        def read(*args: Any) -> Any:
            record = original(*args)
            return replace(record, **change(record))

        return read

    return Symbol("GroupRecord.decode", make)


def changed_fields(change: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Symbol:
    """A record of a group that is changed in other fields."""

    def make(original: Any) -> Any:
        return lambda self, by, at_ms, **fields: original(self, by, at_ms, **change(self, fields))

    return Symbol("GroupRecord.changed", make)


def any_receipt() -> LuaCall:
    """A message has the lease number that it is asked for."""
    lua = """
    for i, id in ipairs(args) do
      local asked = tonumber(argument_behind(id)) or 1
      answer[i] = state(answer[i], function(_, a, e, p) return asked, a, e, p end)
    end"""
    return answers("HMGET", "attempts", lua, "succeed", "fail", "release", "renew", CHANGE)


CHANGE = "change_visibility"
KEPT = (
    drops("LPUSH", "ready", "release"),
    drops("LPUSH", "retry", "release"),
    drops("ZREM", "inflight", "release"),
)
"""What is given back stays in flight."""
