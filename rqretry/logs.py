"""Log records as lines: text for people, JSON for machines. One record, one line, no control bytes.

Records about a message carry `message_id`, `topic`, `group` and `attempt` (design.md section 7);
`about` makes the `extra` for them.
"""

import json
import logging
import os
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
FIELDS = ("message_id", "topic", "group", "attempt", "trace_id")
"""What a record about a message carries beside its text."""

log = logging.getLogger("rqretry")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How this process and its children log; picklable.

    Attributes:
        format: "text" or "json".
        level: "debug", "info", "warning" or "error".
    """

    format: str = "text"
    level: str = "info"


def about(message_id: str, topic: str, group: str, attempt: int) -> dict[str, Any]:
    """The `extra` of a record about a message."""
    return {"message_id": message_id, "topic": topic, "group": group, "attempt": attempt}


def set_up_logging(settings: LogSettings) -> None:
    """Log to standard error; leaves a root logger that already has a handler as it is."""
    handler: logging.StreamHandler[TextIO] = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=settings.level.upper())
    if settings.format == "json":  # what Python itself would write would break the stream of JSON
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread


def default_format(stream: TextIO) -> str:
    """Text where a person reads along, JSON everywhere else."""
    return "text" if stream.isatty() else "json"


def escape(text: str) -> str:
    """The same text, with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class TextFormatter(logging.Formatter):
    """Time, level and message; the lines of a traceback are indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The first line."""
        return escape(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The traceback, so that no line of it looks like a record."""
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"    {escape(line)}" for line in lines)


class JsonFormatter(logging.Formatter):
    """One JSON object in ASCII: ts (UTC, ISO 8601), level, logger, message, pid, and what is known.

    A record about a message has message_id, topic, group and attempt; one with an exception has
    `exception`, its traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "ts": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process or os.getpid(),
        }
        for field in FIELDS:
            value = getattr(record, field, None)
            if value is not None:
                line[field] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("uncaught %s", kind.__name__, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    name = args.thread.name if args.thread else "a thread"
    error = args.exc_value
    log.critical("uncaught %s in %s", args.exc_type.__name__, name, exc_info=error)
