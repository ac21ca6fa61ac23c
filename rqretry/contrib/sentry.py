"""Failed attempts as Sentry events (the extra `rqretry[sentry]`)."""

from collections import OrderedDict
from typing import Any, NamedTuple

from rqretry.app import App
from rqretry.core.consume_result import ConsumeResult, Outcome
from rqretry.core.message import Message
from rqretry.core.middleware import CallNext, Event

try:
    import sentry_sdk
    from sentry_sdk import Scope
    from sentry_sdk.scope import use_isolation_scope
except ImportError as error:
    raise ImportError(
        "rqretry.contrib.sentry needs sentry-sdk: run pip install 'rqretry[sentry]'"
    ) from error

__all__ = ["capture_failures"]

_MOST_UNSETTLED = 1000
"""Attempts that have failed and are not settled yet; one whose lease was lost never is."""


def capture_failures(app: App, *, retried: bool = False, bodies: bool = False) -> None:
    """Send a Sentry event for each message that has failed for good.

    An event has the exception, or the reason where nothing was raised, and the tags
    rqretry.group, rqretry.topic, rqretry.message_id, rqretry.attempt and rqretry.fingerprint.
    What a handler captures itself, and what it logs as an error, has the first four.

    Call it once, before other middleware is registered, so that it is the outermost.

    Args:
        app: Its handlers are watched.
        retried: True: an event for each failed attempt, those that are retried as warnings.
        bodies: True: with the body of the message, and with the local variables of the handler,
            which may hold it.
    """
    failures = _Failures(retried=retried, bodies=bodies)
    app.middleware(failures.around)
    app.on("failure")(failures.failed)


class _Failed(NamedTuple):
    """An attempt that the server does not know of yet."""

    error: Exception | None
    scope: Scope
    """With what was logged meanwhile."""
    body: Any


class _Failures:
    """Keeps exceptions until the server has decided what becomes of their messages."""

    def __init__(self, *, retried: bool, bodies: bool) -> None:
        self._retried = retried
        self._bodies = bodies
        self._unsettled: OrderedDict[tuple[str, str, int], _Failed] = OrderedDict()

    async def around(self, message: Message[Any], call_next: CallNext) -> ConsumeResult:
        """The middleware: an attempt in a scope of its own."""
        with sentry_sdk.isolation_scope() as scope:
            _tag(scope, message.group, message.topic, message.id, message.attempt)
            try:
                result = await call_next(message)
            except Exception as error:
                self._remember(message, error, scope)
                raise
            if result.outcome in {Outcome.FAILURE, Outcome.DEAD_LETTER}:
                self._remember(message, None, scope)
            return result

    def _remember(self, message: Message[Any], error: Exception | None, scope: Scope) -> None:
        body = message.body if self._bodies else None
        key = message.group, message.id, message.attempt
        self._unsettled[key] = _Failed(error, scope, body)
        if len(self._unsettled) > _MOST_UNSETTLED:
            self._unsettled.popitem(last=False)

    def failed(self, event: Event) -> None:
        """The callback: the server knows of the failure."""
        known = self._unsettled.pop((event.group, event.message_id, event.attempt), None)
        final = event.next_due_ms is None
        if not final and not self._retried:
            return
        scope = Scope.get_isolation_scope().fork() if known is None else known.scope
        with use_isolation_scope(scope), sentry_sdk.new_scope() as current:
            _tag(current, event.group, event.topic, event.message_id, event.attempt)
            current.set_tag("rqretry.fingerprint", event.fingerprint)
            current.set_level("error" if final else "warning")
            if not self._bodies:
                current.add_event_processor(_without_variables)
            elif known is not None:
                current.set_context("message", {"body": known.body})
            if known is not None and known.error is not None:
                sentry_sdk.capture_exception(known.error)
            else:
                sentry_sdk.capture_message(f"group {event.group}: {event.reason}")


def _tag(scope: Scope, group: str, topic: str, id_: str, attempt: int) -> None:
    scope.set_tag("rqretry.group", group)
    scope.set_tag("rqretry.topic", topic)
    scope.set_tag("rqretry.message_id", id_)
    scope.set_tag("rqretry.attempt", str(attempt))


def _without_variables(event: Any, _hint: Any) -> Any:
    """An event without the local variables of the frames."""
    for raised in event.get("exception", {}).get("values", ()):
        for frame in (raised.get("stacktrace") or {}).get("frames", ()):
            frame.pop("vars", None)
    return event
