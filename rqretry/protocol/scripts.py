"""Finds, composes and hashes the Lua scripts.

A script is one file per verb, `lua/<verb>.lua`, readable without any Python. What several
verbs share lives in `lua/include/<name>.lua` and is named by a line `-- @include <name>`,
one level deep, so that the composed text is a plain concatenation and every line of it can
be traced back to its file. A line `-- @bind` becomes the line that gives KEYS and ARGV the names of
signatures.py, and `-- @bind keys` makes a table of the keys as well. The flag of a script is a line
`FLAGS` in its first comment.

The server sees one header line before the composed text. It is the only difference between
the dialects, and it is one line in all of them, so a line number in an error of the server
means the same everywhere: see `Script.locate`.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from rqretry.core.errors import ScriptError, show
from rqretry.protocol.signatures import SIGNATURES

CALL_LINE = "local call = redis.call"
"""The line that binds `redis.call` in every script; `call_override` replaces it."""

_NAME = re.compile(r"[a-z][a-z_]*")
_INCLUDE = re.compile(r"-- @include ([a-z][a-z_]*)")
_BIND = re.compile(r"-- @bind( keys)?")
_COMMENT = re.compile(r"\s*--\[\[(?P<block>.*?)\]\]|(?P<lines>(?:\s*--[^\n]*\n)+)", re.DOTALL)
_FLAGS = re.compile(r"^[\s-]*FLAGS +(\S+)\s*$", re.MULTILINE)
_FLAG_VALUES = ("no-writes", "allow-oom", "none")

# On 6.2 a script may exceed maxmemory once it has made a write that is allowed there. '~' is
# never a field of the partition's meta hash, which is KEYS[1] of every writing script.
_LEGACY_ALLOW_OOM = "redis.call('HDEL', KEYS[1], '~')"


class Dialect(Enum):
    """How a server is given a script's flags."""

    SHEBANG = "shebang"
    """Redis 7.0 and later, Valkey: a first line `#!lua flags=...`."""
    LEGACY = "legacy"
    """Redis 6.2 and fakeredis, which do not know that line."""


@dataclass(frozen=True)
class Line:
    """Where one line of a composed script comes from: a file (or test hook) and its line."""

    origin: str
    number: int
    text: str


@dataclass(frozen=True)
class Script:
    """One composed Lua script, ready for either dialect."""

    name: str
    source: str
    """The composed text without the header line."""
    read_only: bool
    """The script never writes (`FLAGS no-writes`): it may run on a replica."""
    allow_oom: bool
    """The script runs at maxmemory too (`FLAGS allow-oom`), so that a full server drains."""
    lines: tuple[Line, ...] = field(repr=False, compare=False)

    def text(self, dialect: Dialect) -> str:
        """The text to send: the dialect's header line, then `source`."""
        return self._forms[dialect][0]

    def sha(self, dialect: Dialect) -> str:
        """The SHA-1 under which the server knows `text(dialect)`."""
        return self._forms[dialect][1]

    def locate(self, line: int) -> str:
        """Map a line number in a server's error to the file, for example `lua/fail.lua:31`."""
        index = line - 2  # lines count from 1, and the first is the header
        if not 0 <= index < len(self.lines):
            return f"lua/{self.name}.lua"
        return f"{self.lines[index].origin}:{self.lines[index].number}"

    @cached_property
    def _forms(self) -> dict[Dialect, tuple[str, str]]:
        texts = {dialect: f"{self._header(dialect)}\n{self.source}" for dialect in Dialect}
        return {
            dialect: (text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
            for dialect, text in texts.items()
        }

    def _header(self, dialect: Dialect) -> str:
        if dialect is Dialect.LEGACY:
            return _LEGACY_ALLOW_OOM if self.allow_oom else ""
        flags = {"no-writes": self.read_only, "allow-oom": self.allow_oom}
        chosen = [name for name, wanted in flags.items() if wanted]
        return f"#!lua flags={','.join(chosen)}" if chosen else "#!lua"


class ScriptLibrary:
    """The scripts of one checkout or installation, each composed once.

    Production uses it without arguments. Tests change scripts from outside, so that every
    other line stays what production runs: `overrides` swaps the text of includes (virtual
    clock), `prelude` is Lua text before every script (declared-keys assertion), and
    `call_override` replaces the line `local call = redis.call` (crash points).
    """

    def __init__(
        self,
        overrides: Mapping[str, str] | None = None,
        prelude: str | None = None,
        call_override: str | None = None,
        directory: Traversable | None = None,
    ) -> None:
        """Read from `directory`, or where the package keeps its scripts.

        Raises ScriptError if `overrides` names an include that does not exist.
        """
        self._directory = script_directory() if directory is None else directory
        self._overrides = dict(overrides or {})
        self._prelude = prelude
        self._call_override = call_override
        self._scripts: dict[str, Script] = {}
        for name in self._overrides:
            self._read(f"include/{name}.lua", wanted_by="an override")

    def get(self, name: str) -> Script:
        """The script of verb `name`. Raises ScriptError if it is missing or malformed."""
        if name not in self._scripts:
            self._scripts[name] = self._compose(name)
        return self._scripts[name]

    def names(self) -> list[str]:
        """The verbs that have a script, sorted."""
        files = (entry.name for entry in self._directory.iterdir() if entry.is_file())
        return sorted(name.removesuffix(".lua") for name in files if name.endswith(".lua"))

    def _compose(self, name: str) -> Script:
        if not _NAME.fullmatch(name):
            raise ScriptError(show(name), 0, "this is not the name of a script")
        text = self._read(f"{name}.lua", wanted_by="a command")
        flag = _flag(name, text)
        lines = _lines("prelude", self._prelude) if self._prelude else []
        lines += self._with_includes(name, self._with_call(name, text))
        return Script(
            name=name,
            source="".join(f"{line.text}\n" for line in lines),
            read_only=flag == "no-writes",
            allow_oom=flag == "allow-oom",
            lines=tuple(lines),
        )

    def _with_call(self, name: str, text: str) -> list[Line]:
        lines = _lines(f"lua/{name}.lua", text)
        if self._call_override is None:
            return lines
        found = [index for index, line in enumerate(lines) if line.text == CALL_LINE]
        if len(found) != 1:
            raise ScriptError(f"lua/{name}.lua", 0, f"it needs exactly one line '{CALL_LINE}'")
        lines[found[0] : found[0] + 1] = _lines("call override", self._call_override)
        return lines

    def _with_includes(self, name: str, lines: list[Line]) -> list[Line]:
        composed: list[Line] = []
        seen: set[str] = set()
        for line in lines:
            include = _included(line)
            if include is None:
                bound = _BIND.fullmatch(line.text)
                composed.append(replace(line, text=_binding(line, name, bound)) if bound else line)
                continue
            if include in seen:
                raise ScriptError(line.origin, line.number, f"{include} is included twice")
            seen.add(include)
            composed += self._include(include, wanted_by=f"lua/{name}.lua")
        return composed

    def version(self) -> str:
        """A name for all scripts: equal for programs that have the same ones."""
        every = "".join(self.get(name).source for name in self.names())
        return hashlib.sha1(every.encode(), usedforsecurity=False).hexdigest()[:12]

    def _include(self, name: str, *, wanted_by: str) -> list[Line]:
        text = self._overrides.get(name)
        if text is None:
            text = self._read(f"include/{name}.lua", wanted_by=wanted_by)
        lines = _lines(f"lua/include/{name}.lua", text)
        for line in lines:
            if _included(line):
                raise ScriptError(line.origin, line.number, "an include may not include")
        return lines

    def _read(self, path: str, *, wanted_by: str) -> str:
        try:
            return (self._directory / path).read_text(encoding="utf-8")
        except OSError as error:
            raise ScriptError(f"lua/{path}", 0, f"needed by {wanted_by}, cannot be read") from error


def load(name: str, overrides: Mapping[str, str] | None = None) -> Script:
    """Compose one script; `overrides` swaps the text of includes. Raises ScriptError."""
    return ScriptLibrary(overrides).get(name)


def names() -> list[str]:
    """The verbs that have a script, sorted."""
    return ScriptLibrary().names()


def script_directory() -> Traversable:
    """Where the scripts are: inside an installed package, else beside it in the checkout."""
    installed = resources.files("rqretry") / "lua"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "lua"


def _lines(origin: str, text: str) -> list[Line]:
    return [Line(origin, number, line) for number, line in enumerate(text.splitlines(), start=1)]


def _included(line: Line) -> str | None:
    if not line.text.lstrip().startswith("-- @include"):
        return None
    match = _INCLUDE.fullmatch(line.text)
    if match is None:
        raise ScriptError(line.origin, line.number, "write '-- @include name', nothing else")
    return match[1]


def _binding(line: Line, name: str, directive: re.Match[str]) -> str:
    if name not in SIGNATURES:
        raise ScriptError(line.origin, line.number, f"signatures.py does not declare {show(name)}")
    return SIGNATURES[name].binding(table=directive[1] is not None) + " -- luacheck: ignore"


def _flag(name: str, text: str) -> str:
    comment = _COMMENT.search(text)
    found = _FLAGS.findall(comment[0]) if comment else []
    if len(found) != 1 or found[0] not in _FLAG_VALUES:
        raise ScriptError(
            f"lua/{name}.lua", 0, f"its header needs one line FLAGS {' | '.join(_FLAG_VALUES)}"
        )
    return str(found[0])
