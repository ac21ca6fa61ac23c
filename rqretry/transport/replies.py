"""What the replies of a server mean: what may have happened, and what is worth repeating. No I/O.

An error of the server says that the call certainly did nothing. A connection that breaks after
something was sent says nothing: the call may have been executed. Both are `TryAgain` where
repeating may help; whatever else is wrong is the RqretryError to raise (docs/guarantees.md R19).
A command that fails inside a script ends it, and what the script wrote before stays: that is
`AmbiguousResult`, but for what a server refuses at the first write only.
"""

import re
import ssl
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
    InvalidResponse,
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
    AmbiguousResult,
    CodecError,
    ConfigError,
    QueueFull,
    RqretryError,
    ScriptError,
    StoreUnavailable,
    escape,
    show,
)
from rqretry.protocol.command import Command
from rqretry.transport.node import GROWING, Node

T = TypeVar("T")

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
_ELSEWHERE = frozenset({"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED"})
_FATAL = {
    "NOAUTH": "wants a password; put one in the URL",
    "WRONGPASS": "refused the user name or password; check the URL",
    "NOPERM": "does not let this user run a command it needs; see `rqretry doctor`",
    "MOVED": "is a node of a cluster: begin the URL with redis+cluster://",
    "ASK": "is a node of a cluster: begin the URL with redis+cluster://",
    "CROSSSLOT": "refused keys of different slots",
}
_CALLS = {
    "publish_with_options": "publish",
    "prepare": "publish",
    "lease": "receive",
    "succeed": "ack",
    "change_visibility": "change_invisible_duration",
}
"""What a user calls, by the script that does it, where the names differ."""
GREETING: Command[bytes] = Command("connect", (), (), bytes, arguments=("INFO",))
"""What stands for all that is sent while connecting."""
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
UNREADABLE = (ValueError, TypeError, LookupError)
"""What decoding a reply raises where the stored data is damaged."""
_NO_REDIS = (
    "does not answer as Redis does: check host and port, and begin the URL with rediss:// if the"
    " server wants TLS"
)
_NO_DATABASE = "DB index is out of range"
_INNER_DENIED = ("can't run this command or subcommand", "ACL failure in script")
"""How servers before and from 7.2 say that a script's user lacks a right."""
_FULL = "max number of clients reached"
_SCRIPT_LINE = re.compile(r"user_script: ?(\d+)")
_INNER_CODE = re.compile(r"(?:@user_script: ?\d+: -|discarded because of: )([A-Z]+) ")
_PREFIX = re.compile(
    r"Error running script \(call to f_[0-9a-f]{40}\): "
    r"|( ?script: [0-9a-f]{40}, on )?@?user_script: ?\d+[:.]?"
)


class TryAgain(Exception):
    """An attempt failed in a way that is worth repeating; `error` is what to raise in the end.

    `sent` says whether the server may have executed the call, `elsewhere` whether another server
    may have taken over.
    """

    def __init__(self, error: RqretryError, *, sent: bool, elsewhere: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent
        self.elsewhere = elsewhere


class Call:
    """One command on its way, until it has its result.

    Attributes:
        command: The command.
        open: Whether it has neither a result nor a definite error.
        result: What it came to.
        error: Why it failed for good.
        again: Why it is still open.
        sent: Whether a server may have executed it without an answer.
        asked: The node to send it to just this once.
    """

    __slots__ = ("again", "asked", "command", "error", "open", "result", "sent")

    def __init__(self, command: Command[Any]) -> None:
        self.command = command
        self.open = True
        self.result: Any = None
        self.error: Exception | None = None
        self.again: TryAgain | None = None
        self.sent = False
        self.asked: Any = None

    def put_off(self, again: TryAgain) -> None:
        """Leave it open, to be repeated; remember if a server may have executed it."""
        self.again = again
        self.sent = self.sent or again.sent
        if again.sent and self.command.once:
            self.fail(_ambiguous(self.command, self.command.ids, str(again.error)))

    def fail(self, error: Exception) -> None:
        """End it with an error, or leave it open if the error is TryAgain."""
        if isinstance(error, TryAgain):
            self.put_off(error)
        else:
            self.error, self.open = error, False

    def read(self, server: Node, reply: Any, confirmed: Sequence[Any] = ()) -> TryAgain | None:
        """Take the reply and that of the confirmation. Returns why to repeat it, if so."""
        try:
            self.result = result_of(server, self.command, reply, confirmed)
        except TryAgain as again:
            self.put_off(again)
            return again
        except Exception as error:  # noqa: BLE001 - raised by `check`, when all are known
            self.error = error
        self.open = False
        return None

    @property
    def outcome(self) -> Any:
        """The result, or the error as a value: definite or ambiguous."""
        if not self.open:
            return self.result if self.error is None else self.error
        assert self.again is not None, "it was sent, or could not be"
        return give_up([self], self.again)


def check(calls: Sequence[Call]) -> None:
    """After an attempt.

    Raises:
        TryAgain: Something is open that is worth repeating.
        Exception: The error of the first command that was refused for good.
    """
    again = None
    for call in calls:
        if call.error is not None:
            raise call.error
        if call.open and again is None:
            again = call.again
    if again is not None:
        raise again


def give_up(calls: Sequence[Call], last: TryAgain) -> RqretryError:
    """What to raise when what is open is not repeated any more."""
    sent = [call.command for call in calls if call.open and call.sent]
    ids = [id_ for command in sent for id_ in command.ids]
    return _ambiguous(sent[0], ids, str(last.error)) if ids else last.error


def result_of(server: Node, command: Command[T], reply: Any, confirmed: Sequence[Any] = ()) -> T:
    """Decode a reply, and that of the command's confirmation, or raise what its error means.

    Raises:
        TryAgain: It is worth repeating; `sent` says whether it may have happened.
        RqretryError: Nothing happened, and repeating does not help.
    """
    if isinstance(reply, Exception):
        raise meaning(server, command, reply)
    try:
        result = command.decode(reply)
    except UNREADABLE as damage:
        raise unreadable(command, damage) from None
    if not confirmed:
        return result
    if isinstance(confirmed[0], Exception):
        error = meaning(server, command, confirmed[0])
        if isinstance(error, TryAgain):  # the command itself was done
            raise TryAgain(error.error, sent=True, elsewhere=error.elsewhere)
    return command.confirmed(result, confirmed[0])


def meaning(server: Node, command: Command[Any], error: Exception) -> Exception:
    """What an error reply means: nothing was executed, or AmbiguousResult."""
    text = escape(str(error))
    code = _inner_code(text) or _code_of(error)
    if code == "OOM" and command.verb in GROWING:
        return QueueFull(
            f"Redis at {server.address} is at its memory limit (maxmemory); the messages were not"
            " stored. Let consumers drain the queue, or raise the limit."
        )
    if code in _WAIT:
        later = StoreUnavailable(f"Redis at {server.address} {_WAIT[code]}")
        return TryAgain(later, sent=False, elsewhere=code in _ELSEWHERE)
    if _FULL in text:
        return _full(server)
    if any(denied in text for denied in _INNER_DENIED):
        code = "NOPERM"
    lasting: RqretryError
    if code in _FATAL:
        lasting = ConfigError(f"Redis at {server.address} {_FATAL[code]}")
    elif command.verb == "connect":
        lasting = no_redis(server, str(error))
    else:
        lasting = _script_error(server, command, text)
    if command.ids and _SCRIPT_LINE.search(text):
        return _ambiguous(command, command.ids, f"a script stopped half-way: {lasting}")
    return lasting


def unreadable(command: Command[Any], error: Exception) -> Exception:
    """What a reply means that cannot be decoded."""
    if isinstance(error, RqretryError):
        return error
    what = f"the answer to {_called(command)} cannot be read ({type(error).__name__})"
    if command.ids:  # what was asked for may have been done
        return _ambiguous(command, command.ids, what)
    return CodecError(f"{what}: the data is damaged; see `rqretry fsck`")


def _ambiguous(command: Command[Any], ids: Sequence[str], reason: str) -> AmbiguousResult:
    return AmbiguousResult(_called(command), ids, reason)


def _called(command: Command[Any]) -> str:
    """The call of a user that a command is part of."""
    return _CALLS.get(command.verb, command.verb)


def no_redis(server: Node, answer: str) -> ConfigError:
    """Whoever answers there answers a greeting with this."""
    return ConfigError(f"Redis at {server.address} {_NO_REDIS} (it answered {show(answer)})")


def moved(server: Node) -> TryAgain:
    """The server does not have these keys any more; nothing was executed."""
    gone = StoreUnavailable(f"Redis at {server.address} says that another node has these keys")
    return TryAgain(gone, sent=False)


def broken(server: Node, error: BaseException, *, sent: bool) -> TryAgain:
    """What a broken connection means for the call that was on it."""
    if _FULL in str(error):
        return _full(server)
    timed_out = isinstance(error, TimeoutError | RedisTimeoutError)
    reason = "did not answer in time" if timed_out else "is unreachable"
    if any(isinstance(cause, InvalidResponse) for cause in _causes(error)):
        reason = _NO_REDIS
    if timed_out and not sent:
        reason += server.hint
    return TryAgain(StoreUnavailable(f"Redis at {server.address} {reason}"), sent=sent)


def refused(server: Node, error: BaseException) -> Exception:
    """What an error while connecting means; nothing was sent yet."""
    if isinstance(error, TryAgain):  # the handshake failed; the call itself was not sent
        return TryAgain(error.error, sent=False)
    if isinstance(error, AuthenticationError):
        code = getattr(error, "status_code", None)
        reason = _FATAL["NOAUTH" if code == "NOAUTH" else "WRONGPASS"]
        return ConfigError(f"Redis at {server.address} {reason}")
    tls = next((cause for cause in _causes(error) if isinstance(cause, ssl.SSLError)), None)
    if tls is not None:
        return _tls_error(server, tls)
    if isinstance(error, SERVER_ERRORS):
        if _NO_DATABASE in str(error):
            return ConfigError(
                f"Redis at {server.address} has no database of the number in the URL: give a lower"
                " one, or raise `databases` on the server"
            )
        return meaning(server, GREETING, error)
    return broken(server, error, sent=False)


def is_error(reply: Any) -> bool:
    """Whether a raw reply is an error of the server."""
    return isinstance(reply, SERVER_ERRORS)


def _full(server: Node) -> TryAgain:
    full = StoreUnavailable(f"Redis at {server.address} accepts no more clients (maxclients)")
    return TryAgain(full, sent=False)


def _tls_error(server: Node, error: ssl.SSLError) -> ConfigError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConfigError(
            f"the certificate of Redis at {server.address} was not accepted:"
            f" {show(error.verify_message)[1:-1]}; check the host name and ssl_ca_certs"
        )
    return ConfigError(
        f"Redis at {server.address} does not speak TLS as the URL says"
        f" ({show(error.reason or str(error))[1:-1]}): begin it with redis:// if the server has"
        " no TLS, or check the certificate files"
    )


def _script_error(server: Node, command: Command[Any], text: str) -> RqretryError:
    found = _SCRIPT_LINE.search(text)
    if command.arguments or not found:
        return ScriptError(f"lua/{command.verb}.lua", 0, text)
    file, _, line = server.scripts.get(command.verb).locate(int(found[1])).partition(":")
    return ScriptError(file, int(line or 0), _PREFIX.sub("", text).strip())


def _code_of(error: Exception) -> str:
    """The code of an error of the server, such as READONLY."""
    code = getattr(error, "status_code", None) or _CODES.get(type(error))
    return str(code or str(error).split(" ", 1)[0])


def _inner_code(text: str) -> str | None:
    """Redis 6.2 wraps the error of a command inside a script, and its code; EXEC the reason."""
    found = _INNER_CODE.search(text)
    return found[1] if found else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def block_seconds(seconds: float) -> float:
    """How long to block, as the server takes it: 0, and on Redis 6.2 a millisecond, is for ever."""
    return max(0.002, round(seconds, 3))
