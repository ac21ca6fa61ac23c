"""A real Redis, called synchronously, with a clock that the simulation moves."""

import socket
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from types import TracebackType
from typing import Any, Self
from zlib import crc32

import hiredis
from redis.exceptions import NoScriptError, ResponseError

from rqretry.protocol.scripts import Dialect, ScriptLibrary, script_directory
from rqretry.testing.clock import START_MS
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.transport.connection import pack_one
from tests.support.lua_hooks import CLOCK_KEY, CUT_CALL, CUT_KEY, VIRTUAL

Arguments = tuple[Any, ...]

_READ = 1 << 16
_AS_WRITTEN = 1 << 20
"""Hashes with values of so many bytes are read in the order in which they were written, not in that
of a seed which each server draws for itself."""
MEMORY = "memory"
"""What a server refuses that has no more of it."""
_LIMITED = "limited"
INCARNATION_KEY = "rqretry:incarnation"
_INCARNATION = f"""
local function incarnation()
  return redis.call('GET', '{INCARNATION_KEY}') or ''
end
"""
_LOGICAL_KEY = "rqretry:logical-time"
_NOTED = f"""
local read_unnoted = read_clock
local function read_clock(...)
  local clock, version, most = read_unnoted(...)
  redis.pcall('MSET', '{_LOGICAL_KEY}', clock.now)
  return clock, version, most
end
"""
"""The logical time of a script is known from outside; those that only read may not tell it.

No run denies MSET, and some deny SET.
"""


class Server:
    """One server for many runs; the scripts stay loaded.

    Attributes:
        embedded: The server itself.
        library: The scripts, on the virtual clock.
        verbs: By SHA, the script that it is.
        sent_sum: A checksum over the bytes of the last call.
        shift_ms: How far the wall clock is off at a time; None: never.
        now_ms: What the wall clock says.
        logical_ms: The logical time of the last script.
    """

    def __init__(self, library: ScriptLibrary, *, appendonly: bool = False) -> None:
        options = ("--enable-debug-command", "yes", "--hash-max-listpack-value", str(_AS_WRITTEN))
        self.embedded = EmbeddedRedis(appendonly=appendonly, extra=options)
        self.durable = appendonly
        self.verbs: dict[str, str] = {}
        self.now_ms = self.logical_ms = 0
        self.sent_sum = 0
        self.shift_ms: Callable[[float], int] | None = None
        self._around: tuple[()] | tuple[Arguments, Arguments] = ()
        """What makes a server that refuses things one that does not, and back."""
        self.use(library)

    def use(self, library: ScriptLibrary) -> None:
        """Take other scripts from here on."""
        self.library = library
        self._cut = {
            library.get(verb).sha(Dialect.SHEBANG): cutting.get(verb)
            for cutting in [with_cuts(library)]
            for verb in library.names()
        }
        self.verbs = {library.get(v).sha(Dialect.SHEBANG): v for v in library.names()}

    def __enter__(self) -> Self:
        """Start."""
        self.embedded.start()
        self._connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._socket.close()
        self.embedded.stop()

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(self.embedded.socket_path))
        self._reader = hiredis.Reader(replyError=_error)

    def reset(self) -> None:
        """Empty it, and make sure that it has the scripts."""
        self.now_ms, self.shift_ms = 0, None
        self.allow()
        known = self.call(("FLUSHALL", "SYNC"), ("SCRIPT", "EXISTS", *self.verbs))[1]
        if 0 in known:
            scripts = map(self.library.get, self.verbs.values())
            self.call(*[("SCRIPT", "LOAD", script.text(Dialect.SHEBANG)) for script in scripts])

    def call(self, *requests: Arguments) -> list[Any]:
        """Send requests, and read as many replies; errors are values."""
        sent = b"".join(map(pack_one, requests))
        self.sent_sum = crc32(sent)
        self._socket.sendall(sent)
        replies: list[Any] = []
        while len(replies) < len(requests):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(_READ))
            else:
                replies.append(reply)
        return replies

    def at(self, seconds: float, *requests: Arguments) -> list[Any]:
        """The same at a virtual time; the first request is that of a process."""
        if self._around:
            before, after = self._around
            self._around = ()
            first, *rest = requests
            replies = self.at(seconds, before, first, after, *rest)
            self._around = (before, after)
            return [replies[1], *replies[3:]]
        now_ms = START_MS + round(seconds * 1000)
        if self.shift_ms is not None:
            self.now_ms = now_ms + self.shift_ms(seconds)
            read = ("GET", _LOGICAL_KEY)
            replies = self.call(("SET", CLOCK_KEY, self.now_ms), *requests, read)[1:]
            self.logical_ms = int(replies.pop() or 0)
            return replies
        if now_ms == self.now_ms:
            return self.call(*requests)
        self.now_ms = self.logical_ms = now_ms
        return self.call(("SET", CLOCK_KEY, now_ms), *requests)[1:]

    def times(self) -> tuple[int, int]:
        """The logical time of the last script, and the wall's."""
        return self.logical_ms, self.now_ms

    def cut(self, seconds: float, request_parts: Arguments, call: int) -> Any:
        """Run a script that stops with an error at this call, or does not make so many."""
        script = self._cut[request_parts[1]]
        sha = script.sha(Dialect.SHEBANG)
        load = ("SCRIPT", "LOAD", script.text(Dialect.SHEBANG))
        spelled = ("EVALSHA", sha, *request_parts[2:])
        return self.at(seconds, load, ("SET", CUT_KEY, call), spelled, ("DEL", CUT_KEY))[2]

    def reload(self) -> None:
        """Write everything down, forget it, and read it again, as a restart does."""
        self.call(("DEBUG", "RELOAD"))

    def snapshot(self) -> list[Arguments]:
        """All that it holds, as calls that bring it back."""
        keys = self.call(("KEYS", "rqretry:sim:*"))[0]
        found = self.call(*[(word, key) for key in keys for word in ("DUMP", "PTTL")])
        return [
            ("RESTORE", key, max(0, ttl), data)
            for key, data, ttl in zip(keys, found[::2], found[1::2], strict=True)
        ]

    def restore(self, snapshot: list[Arguments]) -> None:
        """Go back to what it held then, as a server that was started from an older file."""
        self.call(("FLUSHALL", "SYNC"), *snapshot, ("SET", INCARNATION_KEY, "restored"))
        self.now_ms = 0

    def deny(self, what: str) -> None:
        """Refuse a command to the processes, in scripts too; or more memory."""
        if what == MEMORY:
            self._around = (_memory(1), _memory(0))
            return
        self.call(("ACL", "SETUSER", _LIMITED, "on", "nopass", "~*", "&*", "+@all", f"-{what}"))
        self._around = (("AUTH", _LIMITED, ""), ("AUTH", "default", ""))

    def allow(self) -> None:
        """Refuse nothing any more."""
        self._around = ()

    @property
    def denies(self) -> bool:
        """Whether something is refused now."""
        return bool(self._around)

    def forget_scripts(self) -> None:
        """As a server that was started again."""
        self.call(("SCRIPT", "FLUSH", "SYNC"))

    def crash(self) -> None:
        """End it with SIGKILL, and start it again on what it wrote."""
        self._socket.close()
        self.embedded.kill()
        self.embedded.restart()
        self._connect()


def virtual_scripts(library: ScriptLibrary | None = None) -> ScriptLibrary:
    """The scripts, or a damaged copy of them, on the clock of the simulation."""
    directory = library._directory if library else script_directory()
    return ScriptLibrary(overrides=_overrides(directory), directory=directory)


def _overrides(directory: Traversable) -> dict[str, str]:
    logical = (directory / "include" / "logical.lua").read_text(encoding="utf-8")
    return {**VIRTUAL, "incarnation": _INCARNATION, "logical": logical + _NOTED}


def with_cuts(library: ScriptLibrary) -> ScriptLibrary:
    """The same scripts, which stop at the call that CUT_KEY names."""
    return ScriptLibrary(
        overrides=_overrides(library._directory),
        call_override=CUT_CALL,
        directory=library._directory,
    )


def _memory(most: int) -> Arguments:
    return ("CONFIG", "SET", "maxmemory", most)


def verb_of(request_parts: Sequence[Any], verbs: dict[str, str]) -> str:
    """The script of a request, or the name of a plain command."""
    return (
        verbs.get(request_parts[1], "check")
        if request_parts[0] == "EVALSHA"
        else str(request_parts[0])
    )


def _error(text: str) -> ResponseError:
    kind = NoScriptError if text.startswith("NOSCRIPT") else ResponseError
    return kind(text)
