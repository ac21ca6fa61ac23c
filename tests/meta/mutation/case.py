"""Rules broken on purpose: a case names a rule, the broken behaviour, and the tests that must fail.

A case quotes no source text. A change of the scripts is described in Redis calls (what a script
sends, or what it is answered, by command and key), a change of Python by the name of a function, a
method or a constant, wherever it is defined. So neither moving nor formatting code breaks a case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Make = Callable[[Any], Any]
"""From a function to the wrong one."""


@dataclass(frozen=True)
class LuaCall:
    """Redis calls of some scripts, seen before they are sent and after they are answered.

    Attributes:
        command: Such as "HSET".
        role: How the key ends, such as "inflight"; "delay" of any level, "lane" of any producer.
        scripts: By name; none for all of them.
        send: Lua, run with `key` and `args` (all behind the key), which it may change; what it
            returns is the answer, and nothing is sent.
        answer: Lua, run with `answer`, too, which it may change.
    """

    command: str
    role: str
    scripts: tuple[str, ...] = ()
    send: str = ""
    answer: str = ""


@dataclass(frozen=True)
class LuaLine:
    """A line more in a script, behind its first one."""

    script: str
    line: str


@dataclass(frozen=True)
class LuaFlags:
    """Another kind of script in its header."""

    script: str
    flags: str


@dataclass(frozen=True)
class Symbol:
    """A function or a method of the package, replaced.

    Attributes:
        name: "Class.method" or "function"; with "package:" in front where the name is not unique.
        make: From the original to the wrong one.
    """

    name: str
    make: Make


@dataclass(frozen=True)
class Constant:
    """A constant of a module with another value, as source text."""

    name: str
    value: str


LuaChange = LuaCall | LuaLine | LuaFlags
PythonChange = Symbol | Constant
Change = LuaChange | PythonChange


@dataclass(frozen=True)
class Case:
    """One rule, broken in one way.

    Attributes:
        rule: The row of docs/conformance.md or docs/guarantees.md.
        broken: What is wrong then, in words.
        changes: What makes it so.
        tests: The narrowest tests of which at least one must fail, as pytest takes them.
    """

    rule: str
    broken: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]

    @property
    def lua(self) -> tuple[LuaChange, ...]:
        """The changes of scripts."""
        return tuple(c for c in self.changes if isinstance(c, LuaCall | LuaLine | LuaFlags))

    @property
    def python(self) -> tuple[PythonChange, ...]:
        """The changes of Python."""
        return tuple(c for c in self.changes if isinstance(c, Symbol | Constant))


def sends(command: str, role: str, lua: str, *scripts: str) -> LuaCall:
    """A change of what scripts send."""
    return LuaCall(command, role, scripts, send=lua)


def drops(command: str, role: str, *scripts: str, answer: str = "#args") -> LuaCall:
    """A call that is not made, and is answered all the same."""
    return LuaCall(command, role, scripts, send=f"return {answer}")


def answers(command: str, role: str, lua: str, *scripts: str) -> LuaCall:
    """A change of what scripts are answered."""
    return LuaCall(command, role, scripts, answer=lua)


def scores(role: str, score: str, *scripts: str) -> LuaCall:
    """A ZADD with another score: an expression of `score` and `member`."""
    lua = f"each_score(args, function(score, member) return {score} end)"
    return LuaCall("ZADD", role, scripts, send=lua)


def setting(field: str, value: str, *scripts: str) -> LuaCall:
    """A field of a group's configuration that reads otherwise: an expression of `value`."""
    lua = f"local i = at(args, '{field}') if i then local value = answer[i] answer[i] = {value} end"
    return LuaCall("HMGET", "config", scripts, answer=lua)


def writes_state(numbers: str, *scripts: str) -> LuaCall:
    """Other numbers of a message in a group, as written: expressions of the four.

    They are `lease`, `attempt`, `expiries` and `postpones`.
    """
    change = f"function(lease, attempt, expiries, postpones) return {numbers} end"
    lua = f"each_pair(args, function(value) return state(value, {change}) end)"
    return LuaCall("HSET", "attempts", scripts, send=lua)


def reads_state(numbers: str, *scripts: str) -> LuaCall:
    """The same, as read."""
    change = f"function(lease, attempt, expiries, postpones) return {numbers} end"
    lua = f"for i = 1, #args do answer[i] = state(answer[i], {change}) end"
    return LuaCall("HMGET", "attempts", scripts, answer=lua)
