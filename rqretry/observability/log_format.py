"""Log records as lines: text for people, JSON for machines. One record, one line, no control bytes.

Records about a message carry `message_id`, `topic`, `group` and `attempt`, and of a traced attempt
`trace_id` and `span_id`; `about` makes the `extra` for them. What a handler logs during an attempt
gets them from `MessageFilter`, by the context that the attempt runs in: the event loop, its thread,
its process.
"""

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, NamedTuple, TextIO

from rqretry.core.errors import escape, show
from rqretry.core.message import Message
from rqretry.core.redact import redacted, redacted_value
from rqretry.core.traceparent import ids_of
from rqretry.observability import observer

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FIELDS = ("message_id", "topic", "group", "attempt", "trace_id", "span_id")
"""What a record about a message carries beside its text."""
_NO_EXTRA = {*vars(logging.makeLogRecord({})), *FIELDS, "asctime", "in_attempt", "traceback"}
"""What a record has besides that is not what an application gave as `extra`."""

log = logging.getLogger("rqretry")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How this process and its children log; picklable.

    Attributes:
        format: "text" or "json".
        level: "debug", "info", "warning" or "error".
        tracebacks: With the traceback of a failed attempt, for whoever reads along.
    """

    format: str = "text"
    level: str = "info"
    tracebacks: bool = False


class AttemptFacts(NamedTuple):
    """What a record says about the message whose handler wrote it, for another process.

    Of a batch it names the topics and the group; the id is "" and the attempt 0.
    """

    id: str
    topic: str
    group: str
    attempt: int
    trace_id: str | None
    span_id: str | None = None


Attempt = Message[Any] | AttemptFacts
current_attempt: ContextVar[Attempt | None] = ContextVar("rqretry_attempt", default=None)
"""The attempt that runs in this context; set in a context of its own, so nothing leaks."""
_installed: list[LogSettings] = []


def attempt_facts() -> AttemptFacts | None:
    """The attempt of this context, to be sent to another process."""
    current = current_attempt.get()
    if current is None or isinstance(current, AttemptFacts):
        return current
    return _facts_of(current)


def _facts_of(message: Message[Any]) -> AttemptFacts:
    carrier = {} if observer.installed is None else observer.installed.carrier()
    trace_id, span_id = ids_of(carrier.get("traceparent", "")) or (message.trace_id, None)
    return AttemptFacts(
        message.id, message.topic, message.group, message.attempt, trace_id, span_id
    )


@contextmanager
def within_attempt(facts: AttemptFacts | None) -> Iterator[None]:
    """Records that are written inside are about this attempt."""
    token = current_attempt.set(facts)
    try:
        yield
    finally:
        current_attempt.reset(token)


def settings_elsewhere() -> LogSettings | None:
    """How another process of this one should log; None if the user set logging up."""
    return _installed[-1] if _installed else None


class MessageFilter(logging.Filter):
    """Adds message_id, topic, group, attempt, trace_id and span_id to what a handler logs.

    `rqretry worker` has it on its log handler. Who sets logging up in another way adds it to a
    handler (not to a logger): `handler.addFilter(MessageFilter())`. A record that names a message
    of its own is left as it is.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Never drops a record."""
        facts = attempt_facts()
        if facts is not None and not hasattr(record, "message_id"):
            known = {name: fact or None for name, fact in zip(FIELDS, facts, strict=True)}
            record.__dict__.update(known, in_attempt=True)
        return True


def about(message_id: str, topic: str, group: str, attempt: int, trace: str = "") -> dict[str, Any]:
    """The `extra` of a record about a message; `trace`: the attempt's W3C traceparent."""
    named = {"message_id": message_id, "topic": topic, "group": group, "attempt": attempt}
    ids = ids_of(trace)
    return named if ids is None else named | {"trace_id": ids[0], "span_id": ids[1]}


def log_death(
    message_id: str, topic: str, group: str, deliveries: int, reason: str, trace: str, *, kept: bool
) -> None:
    """One warning for each message that is dead, whatever it died of.

    Not `kept`: it is dropped, and 0 deliveries: their number went with it.
    """
    after = f", after {deliveries} {'delivery' if deliveries == 1 else 'deliveries'}"
    log.warning(
        "%s: message %s of %s, group %s%s: %s",
        "dead letter" if kept else "dropped", message_id, topic, group,
        after if deliveries else "", reason,
        extra=about(message_id, topic, group, deliveries, trace),
    )  # fmt: skip


def set_up_logging(settings: LogSettings) -> None:
    """Log to standard error; leaves a root logger that already has a handler as it is."""
    handler: logging.StreamHandler[TextIO] = logging.StreamHandler()
    text = TextFormatter(tracebacks=settings.tracebacks)
    handler.setFormatter(JsonFormatter() if settings.format == "json" else text)
    handler.addFilter(MessageFilter())
    logging.basicConfig(handlers=[handler], level=settings.level.upper())
    if handler in logging.getLogger().handlers:
        _installed.append(settings)
    if settings.format == "json":  # what Python itself would write would break the stream of JSON
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def default_format(stream: TextIO) -> str:
    """Text where a person reads along, JSON everywhere else."""
    return "text" if stream.isatty() else "json"


class TextFormatter(logging.Formatter):
    """Time, level and message; the lines of a traceback are indented.

    What a handler logs ends with its message: `[message ID of TOPIC, group GROUP, attempt N]`, or
    `[batch of TOPIC, group GROUP]`; where the attempt is traced, with `trace ID, span ID`.
    """

    def __init__(self, *, tracebacks: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._tracebacks = tracebacks

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The first line."""
        line = super().formatMessage(record)
        ends = [_attempt_of(record)] if getattr(record, "in_attempt", False) else []
        known = [(name, getattr(record, f"{name}_id", None)) for name in ("trace", "span")]
        ends += [f"{name} {id_}" for name, id_ in known if id_]
        line += f" [{', '.join(ends)}]" if ends else ""
        trace = getattr(record, "traceback", "") if self._tracebacks else ""
        lines = [escape(redacted(line)), *(f"    {escape(each)}" for each in trace.splitlines())]
        return "\n".join(lines)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The traceback, so that no line of it looks like a record."""
        lines = redacted(super().formatException(ei)).splitlines()
        return "\n".join(f"    {escape(line)}" for line in lines)


def _attempt_of(fields: Any) -> str:
    if fields.message_id is None:
        return f"batch of {fields.topic}, group {fields.group}"
    named = f"message {fields.message_id} of {fields.topic}, group {fields.group}"
    return f"{named}, attempt {fields.attempt}"


class JsonFormatter(logging.Formatter):
    """One JSON object in ASCII: ts (UTC, ISO 8601), level, logger, message, pid, and what is known.

    A record about a message has message_id, topic, group and attempt; one with an exception has
    `exception`, its traceback. What the application gave as `extra` follows, under its own names
    where those are free.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "ts": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "pid": record.process or os.getpid(),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        given = {n: v for n, v in vars(record).items() if n not in line and n not in _NO_EXTRA}
        try:
            return json.dumps(line | redacted_value("", given), default=lambda v: redacted(str(v)))
        except (TypeError, ValueError, RecursionError):  # keys that are no text, a loop
            shown = {name: redacted_value(name, show(value)) for name, value in given.items()}
            return json.dumps(line | shown)


def _log_uncaught(
    type_: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("uncaught %s", type_.__name__, exc_info=(type_, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread else "a thread"
    error = args.exc_value
    log.critical("uncaught %s in %s", args.exc_type.__name__, name, exc_info=error)
