"""Commands as words on the wire and replies as results; shared by both stores. No I/O.

Also the error taxonomy (reliability.md R19): what each error of the server means, whether the call
certainly did nothing, and whether it is worth repeating.
"""

import re
import ssl
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ExecAbortError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from rqretry.core.errors import (
    ConfigError,
    QueueFull,
    RqretryError,
    ScriptError,
    StoreUnavailable,
    show,
)
from rqretry.protocol.command import Argument, Command
from rqretry.protocol.scripts import Dialect, ScriptLibrary

T = TypeVar("T")

Requests = list[tuple[Argument, ...]]
"""Requests to send in one round trip, each in words."""

REPEAT_SECONDS = 15.0
"""How long a call is repeated before its error is raised."""
REPLY_SECONDS = 10.0
"""How long one attempt waits for its reply."""
CONNECT_SECONDS = 5.0
"""How long connecting to a server takes at most, where the URL does not say."""
ASK_SECONDS = 2.0
"""How long one server has to say who holds what; then another one is asked."""
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
_GROWING = ("publish", "catch_up", "prepare", "enlist")
"""Scripts that a full server refuses; all others drain it."""
_ELSEWHERE = frozenset({"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"})
_FATAL = {
    "NOAUTH": "wants a password; put one in the URL",
    "WRONGPASS": "refused the user name or password; check the URL",
    "NOPERM": "does not let this user run a command it needs; see `rqretry doctor`",
    "MOVED": "is a node of a cluster: begin the URL with redis+cluster://",
    "ASK": "is a node of a cluster: begin the URL with redis+cluster://",
    "CROSSSLOT": "refused keys of different slots",
}
SERVER_ERRORS = (ResponseError, AuthenticationError, AuthorizationError, BusyLoadingError)
"""What redis-py raises for an error reply; some of it looks to it like a broken connection."""
_CODES: dict[type[Exception], str] = {  # it cuts the code off the texts of these
    OutOfMemoryError: "OOM",
    ExecAbortError: "EXECABORT",
    BusyLoadingError: "LOADING",
    NoScriptError: "NOSCRIPT",
    ReadOnlyError: "READONLY",
    NoPermissionError: "NOPERM",
    AskError: "ASK",
    MovedError: "MOVED",
    TryAgainError: "TRYAGAIN",
    ClusterDownError: "CLUSTERDOWN",
    ClusterCrossSlotError: "CROSSSLOT",
    MasterDownError: "MASTERDOWN",
    AuthenticationError: "NOAUTH",
}
_NO_DATABASE = "DB index is out of range"
_INNER_DENIED = ("can't run this command or subcommand", "ACL failure in script")
"""How servers before and from 7.2 say that a script's user lacks a right."""
_FULL = "max number of clients reached"
_SCRIPT_LINE = re.compile(r"user_script: ?(\d+)")
_INNER_CODE = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
_PLACE = re.compile(
    r"Error running script \(call to f_[0-9a-f]{40}\): "
    r"|( ?script: [0-9a-f]{40}, on )?@?user_script: ?\d+[:.]?"
)


class TryAgain(Exception):
    """An attempt failed in a way that is worth repeating; `error` is what to raise in the end.

    `sent` tells whether the server may have executed the call, `elsewhere` whether another server
    may have taken over.
    """

    def __init__(self, error: RqretryError, *, sent: bool, elsewhere: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent
        self.elsewhere = elsewhere


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

    def ran_at(self, server_ms: int, sent_at: float) -> float:
        """When a call ran that was sent, or sent first, at `sent_at`; never later than it did."""
        return max(sent_at, self.local(server_ms)) if self.known else sent_at

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
        self.hint = ""
        """What may be wrong where it cannot be connected to in time."""
        self._loaded: set[str] = set()
        self._shas: dict[str, tuple[Dialect, str]] = {}

    def words(self, command: Command[Any]) -> tuple[Argument, ...]:
        """The words of one request."""
        if command.arguments:
            return command.arguments
        known = self._shas.get(command.verb)
        if known is None or known[0] is not self.dialect:
            known = self.dialect, self.scripts.get(command.verb).sha(self.dialect)
            self._shas[command.verb] = known
        return ("EVALSHA", known[1], len(command.keys), *command.keys, *command.args)

    def load(self, command: Command[Any]) -> tuple[Argument, ...]:
        """The request that makes the command's script known."""
        return ("SCRIPT", "LOAD", self.scripts.get(command.verb).text(self.dialect))

    def loads(self, commands: Sequence[Command[Any]]) -> Requests:
        """What to send before a batch, so that its commands run in their order.

        A script that the server does not know is loaded and run again, but then it would run after
        those behind it. A single command has none behind it.
        """
        if len(commands) == 1:
            return []
        missing = {c.verb: c for c in commands if not c.arguments and c.verb not in self._loaded}
        self._loaded.update(missing)
        return [self.load(command) for command in missing.values()]

    def forget(self) -> None:
        """The server may have been started anew, without the scripts."""
        self._loaded.clear()

    def result(self, command: Command[T], reply: Any, confirmed: Sequence[Any] = ()) -> T:
        """Decode a reply, and that of the command's confirmation, or raise what its error means.

        Raises:
            TryAgain: It is worth repeating; `sent` says whether it may have happened.
            RqretryError: Nothing happened, and repeating does not help.
        """
        if isinstance(reply, Exception):
            raise self.meaning(command, reply)
        result = command.decode(reply)
        if not confirmed:
            return result
        if isinstance(confirmed[0], Exception):
            error = self.meaning(command, confirmed[0])
            if isinstance(error, TryAgain):  # the command itself was done
                raise TryAgain(error.error, sent=True, elsewhere=error.elsewhere)
        return command.confirmed(result, confirmed[0])

    def moved(self) -> TryAgain:
        """The server does not have these keys any more; nothing was executed."""
        gone = StoreUnavailable(f"Redis at {self.place} says that another node has these keys")
        return TryAgain(gone, sent=False)

    def meaning(self, command: Command[Any], error: Exception) -> Exception:
        """What an error reply means; all of these are definite: nothing was executed."""
        text = str(error)
        code = _inner_code(text) or code_of(error)
        if code == "OOM" and command.verb in _GROWING:
            return QueueFull(
                f"Redis at {self.place} is at its memory limit (maxmemory); the messages were not"
                " stored. Let consumers drain the queue, or raise the limit."
            )
        if code in _WAIT:
            later = StoreUnavailable(f"Redis at {self.place} {_WAIT[code]}")
            return TryAgain(later, sent=False, elsewhere=code in _ELSEWHERE)
        if _FULL in text:
            return self._full()
        if any(denial in text for denial in _INNER_DENIED):
            code = "NOPERM"
        if code in _FATAL:
            return ConfigError(f"Redis at {self.place} {_FATAL[code]}")
        return self._script_error(command, text)

    def broken(self, error: BaseException, *, sent: bool) -> TryAgain:
        """What a broken connection means for the call that was on it."""
        if _FULL in str(error):
            return self._full()
        reason = "did not answer in time" if timed_out(error) else "is unreachable"
        if timed_out(error) and not sent:
            reason += self.hint
        return TryAgain(StoreUnavailable(f"Redis at {self.place} {reason}"), sent=sent)

    def refused(self, error: BaseException) -> Exception:
        """What an error while connecting means; nothing was sent yet."""
        if isinstance(error, TryAgain):  # the greeting failed; the call itself was not sent
            return TryAgain(error.error, sent=False)
        if isinstance(error, AuthenticationError):
            told = getattr(error, "status_code", None)
            reason = _FATAL["NOAUTH" if told == "NOAUTH" else "WRONGPASS"]
            return ConfigError(f"Redis at {self.place} {reason}")
        for cause in causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                return ConfigError(
                    f"the certificate of Redis at {self.place} was not accepted:"
                    f" {show(cause.verify_message)[1:-1]}; check the host name and ssl_ca_certs"
                )
            if isinstance(cause, ssl.SSLError):
                return ConfigError(
                    f"Redis at {self.place} does not speak TLS as the URL says"
                    f" ({show(cause.reason or '')[1:-1]}): begin it with redis:// if the server has"
                    " no TLS, or check the certificate files"
                )
        if isinstance(error, SERVER_ERRORS):
            if _NO_DATABASE in str(error):
                return ConfigError(
                    f"Redis at {self.place} has no database of the number in the URL: give a lower"
                    " one, or raise `databases` on the server"
                )
            return self.meaning(Command("connect", (), (), bytes, arguments=("PING",)), error)
        return self.broken(error, sent=False)

    def _full(self) -> TryAgain:
        full = StoreUnavailable(f"Redis at {self.place} accepts no more clients (maxclients)")
        return TryAgain(full, sent=False)

    def _script_error(self, command: Command[Any], text: str) -> RqretryError:
        found = _SCRIPT_LINE.search(text)
        if command.arguments or not found:
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
    return isinstance(reply, SERVER_ERRORS)


def code_of(error: Exception) -> str:
    """The code of an error of the server, such as READONLY."""
    told = getattr(error, "status_code", None) or _CODES.get(type(error))
    return str(told or str(error).split(" ", 1)[0])


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those behind it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def timed_out(error: BaseException) -> bool:
    """Whether nothing came back in time."""
    return isinstance(error, TimeoutError | RedisTimeoutError)


def _inner_code(text: str) -> str | None:
    """Redis 6.2 wraps the error of a command inside a script, and its code with it."""
    found = _INNER_CODE.search(text)
    return found[1] if found else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])
