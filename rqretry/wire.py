"""Commands as words on the wire and replies as results; shared by both stores. No I/O.

Also the error taxonomy (reliability.md R19): what each error of the server means, whether the call
certainly did nothing, and whether it is worth repeating.
"""

import re
import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from rqretry.command import Command, Word
from rqretry.errors import ConfigError, QueueFull, RqretryError, ScriptError, StoreUnavailable
from rqretry.scripts import Dialect, ScriptLibrary

REPEAT_SECONDS = 15.0
"""How long a call is repeated before its error is raised."""
REPLY_SECONDS = 10.0
"""How long one attempt waits for its reply."""
BLOCK_MARGIN_SECONDS = 5.0
"""How much later than its own time-out a blocking command may answer."""

_WAIT = {
    "LOADING": "is loading its data",
    "BUSY": "is busy with a long script",
    "READONLY": "is a replica, or a failover is under way",
    "NOREPLICAS": "has too few replicas (min-replicas-to-write)",
    "MISCONF": "cannot write to its disk",
    "MASTERDOWN": "has lost its primary",
    "CLUSTERDOWN": "is in a cluster that is down",
    "TRYAGAIN": "is moving this slot",
    "UNBLOCKED": "is failing over",
    "EXECABORT": "aborted the transaction",
    "OOM": "is out of memory (maxmemory)",
}
_GROWING = ("publish", "catch_up")
"""Scripts that a full server refuses; all others drain it."""
_FATAL = {
    "NOAUTH": "wants a password; put one in the URL",
    "WRONGPASS": "refused the user name or password; check the URL",
    "NOPERM": "does not let this user run a command it needs; see `rqretry doctor`",
    "MOVED": "is a node of a cluster that holds another part of the data",
    "CROSSSLOT": "refused keys of different slots",
}
_SCRIPT_LINE = re.compile(r"user_script: ?(\d+)")
_INNER_CODE = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
_PLACE = re.compile(
    r"Error running script \(call to f_[0-9a-f]{40}\): "
    r"|( ?script: [0-9a-f]{40}, on )?@?user_script: ?\d+[:.]?"
)


class TryAgain(Exception):
    """An attempt failed in a way that is worth repeating; `error` is what to raise in the end.

    `sent` tells whether the server may have executed the call.
    """

    def __init__(self, error: RqretryError, *, sent: bool) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent


class ServerClock:
    """The server's time as this client estimates it, from what replies said."""

    def __init__(self) -> None:
        self._offset_ms: float | None = None

    def note(self, now_ms: int, sent_at: float | None = None) -> None:
        """The server said it was `now_ms`, after the request was sent at this monotonic time."""
        if now_ms:
            self._offset_ms = now_ms - (time.monotonic() if sent_at is None else sent_at) * 1000

    def local(self, server_ms: int) -> float:
        """The monotonic time of a server time: never later than it really was, or than now."""
        now = time.monotonic()
        return now if self._offset_ms is None else min(now, (server_ms - self._offset_ms) / 1000)

    @property
    def known(self) -> bool:
        """Whether the server was asked yet."""
        return self._offset_ms is not None

    def now_ms(self) -> int:
        """Milliseconds since the epoch on the server; 0 before anything is known."""
        return 0 if self._offset_ms is None else int(self._offset_ms + time.monotonic() * 1000)


class Wire:
    """Spells commands for one server, and reads its replies."""

    def __init__(self, library: ScriptLibrary, place: str) -> None:
        self.scripts = library
        self.place = place
        self.dialect = Dialect.SHEBANG
        self._loaded: set[str] = set()

    def words(self, command: Command[Any]) -> tuple[Word, ...]:
        """The words of one request."""
        if command.words:
            return command.words
        sha = self.scripts.get(command.verb).sha(self.dialect)
        return ("EVALSHA", sha, len(command.keys), *command.keys, *command.args)

    def load(self, command: Command[Any]) -> tuple[Word, ...]:
        """The request that makes the command's script known."""
        return ("SCRIPT", "LOAD", self.scripts.get(command.verb).text(self.dialect))

    def loads(self, commands: Sequence[Command[Any]]) -> list[tuple[Word, ...]]:
        """What to send before a batch, so that its commands run in their order.

        A script that the server does not know is loaded and run again, but then it would run after
        those behind it. A single command has none behind it.
        """
        if len(commands) == 1:
            return []
        missing = {c.verb: c for c in commands if not c.words and c.verb not in self._loaded}
        self._loaded.update(missing)
        return [self.load(command) for command in missing.values()]

    def unknown(self, commands: Sequence[Command[Any]], replies: Sequence[Any]) -> list[int]:
        """Which of the replies say that the script is not known."""
        return [i for i in range(len(commands)) if isinstance(replies[i], NoScriptError)]

    def result(self, command: Command[Any], reply: Any) -> Any:
        """Decode a reply, or raise what its error means.

        Raises:
            TryAgain: Nothing happened, and a later attempt may succeed.
            RqretryError: Nothing happened, and repeating does not help.
        """
        if isinstance(reply, Exception):
            raise self.meaning(command, reply)
        return command.decode(reply)

    def meaning(self, command: Command[Any], error: Exception) -> Exception:
        """What an error reply means; all of these are definite: nothing was executed."""
        text = str(error)
        code = _inner_code(text) or getattr(error, "status_code", None) or text.split(" ", 1)[0]
        if code == "OOM" and command.verb in _GROWING:
            return QueueFull(
                f"Redis at {self.place} is at its memory limit (maxmemory); the messages were not"
                " stored. Let consumers drain the queue, or raise the limit."
            )
        if code in _WAIT:
            return TryAgain(StoreUnavailable(f"Redis at {self.place} {_WAIT[code]}"), sent=False)
        if "max number of clients" in text:
            full = StoreUnavailable(f"Redis at {self.place} accepts no more clients (maxclients)")
            return TryAgain(full, sent=False)
        if code in _FATAL:
            return ConfigError(f"Redis at {self.place} {_FATAL[code]}")
        return self._script_error(command, text)

    def broken(self, error: BaseException, *, sent: bool) -> TryAgain:
        """What a broken connection means for the call that was on it."""
        reason = "did not answer in time" if isinstance(error, TimeoutError) else "is unreachable"
        return TryAgain(StoreUnavailable(f"Redis at {self.place} {reason}"), sent=sent)

    def _script_error(self, command: Command[Any], text: str) -> RqretryError:
        found = _SCRIPT_LINE.search(text)
        if command.words or not found:
            return ScriptError(f"lua/{command.verb}.lua", 0, text)
        file, _, line = self.scripts.get(command.verb).locate(int(found[1])).partition(":")
        return ScriptError(file, int(line or 0), _PLACE.sub("", text).strip())


def dialect_of(version: str) -> Dialect:
    """Redis 7.0 and Valkey know a script's flags."""
    return Dialect.SHEBANG if _version(version) >= (7, 0) else Dialect.LEGACY


def supported(version: str) -> bool:
    """Redis 6.2 is the oldest server with what the scripts use."""
    return _version(version) >= (6, 2)


def is_error(reply: Any) -> bool:
    """Whether a raw reply is an error of the server."""
    return isinstance(reply, ResponseError)


def _inner_code(text: str) -> str | None:
    """Redis 6.2 wraps the error of a command inside a script, and its code with it."""
    found = _INNER_CODE.search(text)
    return found[1] if found else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
