"""Mutants of the Lua scripts: every Redis call dropped, every comparison flipped.

A mutant is one changed place of one file; it keeps the number of lines. Its name quotes no line: a
call is named by its command, its key and which of the equal ones in the file it is, a comparison by
its function, its operator and which of the equal ones in the function. So formatting changes none.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FLIPPED = {"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

_TABLES = frozenset({
    "HGETALL", "HKEYS", "HMGET", "LRANGE", "XRANGE", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX",
    "ZRANGEBYSCORE",
})  # fmt: skip
_NUMBERS = frozenset({
    "EXISTS", "HEXISTS", "HINCRBY", "HLEN", "LLEN", "LPUSH", "RPUSH", "ZCARD", "ZCOUNT",
})  # fmt: skip
_CONTINUED = frozenset({
    "(", "{", "[", ",", "=", "..", "+", "-", "*", "/", "%", "and", "or", "not", "return", "in",
})  # fmt: skip
"""After these an expression continues on the next line."""
_OPENING = frozenset({"function", "if", "do", "repeat"})
"""They begin a block, which ends with its own word; `for` and `while` have their `do`."""
_NOTHING = "false"
"""What GET, HGET and ZSCORE answer where there is nothing."""

_TOKENS = re.compile(
    r"""(?P<long>--\[\[.*?\]\])|(?P<comment>--[^\n]*)
    |(?P<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")
    |(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<number>\d+(?:\.\d+)?)
    |(?P<operator>==|~=|<=|>=|\.\.\.?|<|>|[-+*/%^\#(){}\[\];:,.=])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A piece of Lua that is neither blank nor comment."""

    kind: str
    text: str
    start: int
    end: int


class Mutant(NamedTuple):
    """One file with one change."""

    path: str
    """Below lua/."""
    line: int
    kind: str
    """"drop" or "flip"."""
    change: str
    """What was changed, in words."""
    occurrence: int
    """Of equal changes in the file, from 1."""
    text: str
    """The whole changed file."""

    @property
    def name(self) -> str:
        """What it is called where results and reasons are kept."""
        times = f" #{self.occurrence}" if self.occurrence > 1 else ""
        return f"{self.path.removesuffix('.lua')}: {self.change}{times}"


def mutants_of(folder: Path) -> list[Mutant]:
    """Every mutant of every script and include below a folder."""
    found = []
    for path in sorted([*folder.glob("*.lua"), *folder.glob("include/*.lua")]):
        found += mutants_in(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8"))
    return found


def mutants_in(path: str, text: str) -> list[Mutant]:
    """Every mutant of one file."""
    tokens = list(tokens_of(text))
    changes = sorted([*_dropped(text, tokens), *_flipped(tokens)])
    seen: Counter[str] = Counter()
    found = []
    for start, end, put, kind, change in changes:
        seen[change] += 1
        blank = "\n" * text.count("\n", start, end)
        found.append(
            Mutant(
                path, text.count("\n", 0, start) + 1, kind, change, seen[change],
                text[:start] + put + blank + text[end:],
            )
        )  # fmt: skip
    return found


def tokens_of(text: str) -> Iterator[Token]:
    """The tokens of Lua text."""
    for match in _TOKENS.finditer(text):
        kind = match.lastgroup or ""
        if kind not in {"long", "comment"}:
            yield Token(kind, match[0], match.start(), match.end())


Change = tuple[int, int, str, str, str]


def _flipped(tokens: list[Token]) -> Iterator[Change]:
    functions = _functions(tokens)
    for token in tokens:
        put = FLIPPED.get(token.text) if token.kind == "operator" else None
        function = next(functions)
        if put is not None:
            where = f" in {function}" if function else ""
            yield token.start, token.end, put, "flip", f"{token.text} becomes {put}{where}"


def _functions(tokens: list[Token]) -> Iterator[str]:
    """The innermost function with a name that each token stands in, "" for none."""
    blocks: list[str] = []
    for at, token in enumerate(tokens):
        if token.kind == "word" and token.text in _OPENING:
            after = tokens[at + 1]
            named = token.text == "function" and after.kind == "word"
            blocks.append(after.text if named else "")
        elif token.kind == "word" and token.text in {"end", "until"}:
            blocks.pop()
        yield next((name for name in reversed(blocks) if name), "")


def _dropped(text: str, tokens: list[Token]) -> Iterator[Change]:
    for at, token in enumerate(tokens):
        if token.text != "call" or tokens[at + 1].text != "(":
            continue
        end = tokens[_closing(tokens, at + 1)].end
        command = tokens[at + 2].text.strip("'")
        change = f"no {command if command.isupper() else 'call'}{_key(tokens, at + 3)}"
        if _is_statement(text, tokens, at):
            yield token.start, end, "", "drop", change
        else:
            yield token.start, end, _answer(command), "drop", change


def _key(tokens: list[Token], comma: int) -> str:
    """The name of a call's key, as in " inflight" for `keys.inflight`; "" where it has none."""
    if tokens[comma].text != ",":
        return ""
    end = comma + 1
    while tokens[end + 1].kind == "word" or tokens[end + 1].text == ".":
        end += 1
    return f" {tokens[end].text}" if tokens[end].kind == "word" else ""


def _closing(tokens: list[Token], at: int) -> int:
    depth = 0
    for index in range(at, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].text, 0)
        if depth == 0:
            return index
    raise ValueError("a call has no end")


def _is_statement(text: str, tokens: list[Token], at: int) -> bool:
    """Nothing uses the answer: the call begins its line, and continues no expression."""
    first = text.rfind("\n", 0, tokens[at].start) + 1
    if text[first : tokens[at].start].strip():
        return False
    before = tokens[at - 1].text if at else ""
    return before not in _CONTINUED and before not in FLIPPED


def _answer(command: str) -> str:
    if command == "TIME":
        return "{ 0, 0 }"
    if command == "HSCAN":
        return "{ '0', {} }"
    if command in _TABLES:
        return "{}" if command == "HGETALL" else "({})"
    return "0" if command in _NUMBERS else _NOTHING
