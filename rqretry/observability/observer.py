"""The seam for tracing and metrics: what is installed here sees each publish, attempt and redrive.

The core knows no vendor. With nothing installed a publish and an attempt cost the check of one
variable. An observer must not raise or block; it is called from the event loop and, for publishing,
from any thread.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

from rqretry.core.message import Message, ReceiptHandle
from rqretry.core.redis_url import RedisUrl

Call = Callable[[Message[Any]], Coroutine[Any, Any, Any]]
BatchCall = Callable[[], Coroutine[Any, Any, Any]]

SUCCESS, FAILURE, DEAD_LETTER = "success", "failure", "dead_letter"
POSTPONED, RELEASED, STALE, LOST = "postponed", "released", "stale", "lost"
OUTCOMES = (SUCCESS, FAILURE, DEAD_LETTER, POSTPONED, RELEASED, STALE, LOST)
"""How an attempt ended. STALE: its result came after its lease was over. LOST: its lease was over
while its handler ran. POSTPONED and RELEASED are not counted."""

ACK, NACK, CHANGE, RELEASE = "ack", "nack", "change_invisible_duration", "release"
"""What a simple consumer settles with; NACK is a change to 0: visible at once."""


Published = tuple[str, str]
"""A message of a transaction: its topic, and the W3C traceparent of its publish, "" for none."""
Leased = tuple[ReceiptHandle, Message[Any] | None]
"""One lease of a simple consumer; the message where it was given, and not only its handle."""


class Server(NamedTuple):
    """Where Redis is: a host and its port, or the path of a socket and 0."""

    address: str
    port: int


class Publication(Protocol):
    """One publish, or one publish_many, under way."""

    items: list[Any]
    """What to publish instead: the same messages, with the trace's context in their headers."""

    @property
    def traces(self) -> Sequence[str]:
        """Of each, its W3C traceparent; "" for none."""

    def done(self, answers: Sequence[Any]) -> None:
        """It ended, with an id or an error for each message."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


class Watched(Protocol):
    """The attempt of one message under way."""

    @property
    def trace(self) -> str:
        """Its W3C traceparent, for the failure record; "" for none."""

    def settled(
        self, outcome: str, *, record: str = "", level: int = 0, due_ms: int | None = None
    ) -> None:
        """The server knows how it ended; one of OUTCOMES.

        Args:
            outcome: How.
            record: Of a failure, its attempt record.
            level: The delay level at which it waits; 0 for none.
            due_ms: When it is due again, server time in milliseconds.
        """


class Attempt(Watched, Protocol):
    """One attempt under way whose handler takes the message alone."""

    def around(self, call: Call) -> Call:
        """The handler's call, observed; runs in the attempt's own context."""


class BatchAttempt(Protocol):
    """The attempts of a batch, which one call of its handler makes."""

    @property
    def messages(self) -> Sequence[Watched]:
        """The attempt of each message, in the order of the batch."""

    def around(self, call: BatchCall) -> BatchCall:
        """The handler's call, observed."""


class Redrive(Protocol):
    """Dead letters that are being sent back."""

    traces: list[str]
    """Of each, the W3C traceparent of its way back; "" for none."""

    def done(self, sent: Sequence[bool]) -> None:
        """Which of them were sent back."""


class Settling(Protocol):
    """A simple consumer's ack, change of an invisible duration or release, under way."""

    def done(self, rejected: Iterable[str]) -> None:
        """It ended; `rejected` are the ids of those whose lease was over."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


class Decision(Protocol):
    """A transaction is being committed or rolled back."""

    def done(self, *, decided: bool) -> None:
        """It is; `decided`: by this call, and not before."""

    def failed(self, error: BaseException) -> None:
        """It raised."""


class Unseen:
    """A Settling that is not observed."""

    def done(self, rejected: Iterable[str]) -> None:
        """Nothing."""

    def failed(self, error: BaseException) -> None:
        """Nothing."""


class Observer(Protocol):
    """Tracing, metrics, or both."""

    def publishing(
        self,
        namespace: str,
        topic: str,
        items: Sequence[Any],
        *,
        batch: bool,
        transaction: str = "",
    ) -> Publication:
        """A publish begins; `batch`: it is a publish_many; `transaction`: the one it is part of."""

    def received(
        self, namespace: str, messages: Sequence[Message[Any]], client: str, asked_ns: int
    ) -> None:
        """A simple consumer got messages; `asked_ns`: when it asked, ns since the epoch."""

    def settling(self, namespace: str, verb: str, items: Sequence[Leased], client: str) -> Settling:
        """A simple consumer settles; `verb` is ACK, NACK, CHANGE or RELEASE."""

    def deciding(
        self, namespace: str, transaction: str, decision: str, published: Sequence[Published]
    ) -> Decision:
        """A transaction is being decided: "committed" or "rolled_back"."""

    def dead_lettered(self, namespace: str, dead_letters: Sequence[Any], worker: str) -> None:
        """Messages (DeadLetterRecord, without bodies) died because their leases ran out."""

    def attempting(self, namespace: str, message: Message[Any], worker: str) -> Attempt:
        """An attempt begins."""

    def attempting_batch(
        self, namespace: str, messages: Sequence[Message[Any]], worker: str
    ) -> BatchAttempt:
        """A batch of one message or more begins."""

    def redriving(
        self, namespace: str, group: str, dead_letters: Sequence[Any], actor: str
    ) -> Redrive:
        """Dead letters (DeadLetterRecord, without bodies) are about to be sent back."""

    def carrier(self) -> dict[str, str]:
        """The current context, to be sent to another process."""

    def within(self, carrier: Mapping[str, str]) -> AbstractContextManager[None]:
        """In another process: continue in the context that came with the call."""

    def elsewhere(self) -> Callable[[], None] | None:
        """Installs the same observer in another process; picklable. None: its own code does."""

    def spans(self) -> Mapping[str, int]:
        """How many spans were exported, rejected by the collector, or dropped from a full queue."""

    def flush(self) -> None:
        """The process is about to end: send what is held, within a few seconds."""


installed: Observer | None = None
_servers: dict[str, Server | None] = {}
servers_known = 0
"""How often something was learnt about servers."""


def use_server(namespace: str, url: RedisUrl) -> None:
    """A client or a worker of this process uses the namespace there."""
    global servers_known  # noqa: PLW0603 - as above
    server = Server(url.path or url.host, url.port)
    now = server if _servers.get(namespace, server) == server else None
    if now is None or namespace not in _servers:
        _servers[namespace] = now
        servers_known += 1


def server_of(namespace: str) -> Server | None:
    """Where a namespace is, as the process's URL names it; None where two servers have it."""
    return _servers.get(namespace)


def install(observer: Observer | None) -> None:
    """Observe this process from now on; None: observe it no more."""
    global installed  # noqa: PLW0603 - one per process, as are tracer providers
    installed = observer


def stop() -> None:
    """Send what is held, and observe no more; the process is about to end."""
    if installed is not None:
        installed.flush()
        install(None)


def within(carrier: Mapping[str, str]) -> AbstractContextManager[None]:
    """In another process: continue in the context that came with the call."""
    return nullcontext() if installed is None else installed.within(carrier)


@contextmanager
def publication(
    namespace: str, topic: str, items: Sequence[Any], *, batch: bool, transaction: str = ""
) -> Iterator[Publication]:
    """Observe a publish; only where an observer is installed."""
    assert installed is not None
    watched = installed.publishing(namespace, topic, items, batch=batch, transaction=transaction)
    with _failing(watched):
        yield watched


@contextmanager
def deciding(
    namespace: str, transaction: str, decision: str, published: Sequence[Published]
) -> Iterator[Decision]:
    """Observe how a transaction is decided; only where an observer is installed."""
    assert installed is not None
    watched = installed.deciding(namespace, transaction, decision, published)
    with _failing(watched):
        yield watched


@contextmanager
def settling(namespace: str, verb: str, items: Sequence[Leased], client: str) -> Iterator[Settling]:
    """Observe what a simple consumer settles; only where an observer is installed."""
    assert installed is not None
    watched = installed.settling(namespace, verb, items, client)
    with _failing(watched):
        yield watched


@contextmanager
def _failing(watched: Publication | Settling | Decision) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        watched.failed(error)
        raise
