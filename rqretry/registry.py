"""What `@app.consumer` registers: handlers with their group, topics and settings, all checked."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rqretry.durations import Duration, milliseconds
from rqretry.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.limits import check_count, check_group, check_max_retries, check_topic
from rqretry.outcome import means_bool, none_means_success, return_annotation
from rqretry.policy import RetryPolicy

ASYNC_CONCURRENCY = 64
SYNC_CONCURRENCY = 16
MAX_CONCURRENCY = 10_000
VISIBILITY_S = 30
CONSUME_TIMEOUT_S = 900
MAX_POSTPONES = 1000
_LEAST_VISIBILITY_S, _MOST_VISIBILITY_S = 0.1, 12 * 3600

Handler = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """One registered handler.

    Attributes:
        handler: The function as it was decorated.
        topics: One or more.
        group: The consumer group.
        is_async: Runs in the event loop; otherwise in threads.
        max_retries: What this consumer names; None leaves the group's own. -1 is unlimited.
        policy: The same.
        concurrency: Attempts at once in one process.
        visibility_ms: The lease, renewed while the handler runs.
        consume_timeout_ms: Counted from the lease.
        max_postpones: How often one message may be postponed.
        none_is_success: What None means.
        returns_bool: Whether False is a failure.
        place: file:line of the handler.
    """

    handler: Handler
    topics: tuple[str, ...]
    group: str
    is_async: bool
    max_retries: int | None
    policy: RetryPolicy | None
    concurrency: int
    visibility_ms: int
    consume_timeout_ms: int
    max_postpones: int
    none_is_success: bool
    returns_bool: bool
    place: str

    @property
    def name(self) -> str:
        """The handler's qualified name."""
        return getattr(self.handler, "__qualname__", repr(self.handler))


class Registry:
    """The consumers of an app."""

    def __init__(self) -> None:
        self.consumers: list[ConsumerSpec] = []

    def add(
        self,
        handler: Handler,
        topics: str | Sequence[str],
        *,
        group: str,
        max_retries: int | str | None = None,
        policy: RetryPolicy | None = None,
        concurrency: int | None = None,
        visibility: Duration = VISIBILITY_S,
        consume_timeout: Duration = CONSUME_TIMEOUT_S,
        max_postpones: int = MAX_POSTPONES,
        none_is: str | None = None,
    ) -> ConsumerSpec:
        """Check and keep a handler. Raises InvalidArgument, ConfigError."""
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise InvalidArgument("topics: a consumer needs at least one topic")
        is_async = _check_handler(handler)
        annotation = return_annotation(handler)
        spec = ConsumerSpec(
            handler=handler,
            topics=tuple(dict.fromkeys(check_topic(name) for name in names)),
            group=check_group(group),
            is_async=is_async,
            max_retries=_max_retries(max_retries, policy),
            policy=_policy(policy),
            concurrency=check_count(
                concurrency or (ASYNC_CONCURRENCY if is_async else SYNC_CONCURRENCY),
                name="concurrency",
                maximum=MAX_CONCURRENCY,
            ),
            visibility_ms=milliseconds(
                visibility,
                name="visibility",
                minimum=_LEAST_VISIBILITY_S,
                maximum=_MOST_VISIBILITY_S,
            ),
            consume_timeout_ms=milliseconds(consume_timeout, name="consume_timeout", minimum=0.001),
            max_postpones=check_count(max_postpones, name="max_postpones", minimum=0),
            none_is_success=_none_is(none_is, none_means_success(annotation)),
            returns_bool=means_bool(annotation),
            place=_place(handler),
        )
        self._check_alone(spec)
        self.consumers.append(spec)
        return spec

    def _check_alone(self, spec: ConsumerSpec) -> None:
        """One handler for a topic in a group: with two, chance would decide which one runs."""
        for other in self.consumers:
            both = set(other.topics) & set(spec.topics)
            if other.group == spec.group and both:
                raise ConfigError(
                    f"two handlers for topic {show(min(both))} in group {show(spec.group)}:"
                    f" {other.name} ({other.place}) and {spec.name} ({spec.place});"
                    " give one of them another group"
                )


def _check_handler(handler: Handler) -> bool:
    if not callable(handler):
        refuse("handler", handler, "must be a function")
    try:
        signature = inspect.signature(handler)
        signature.bind(object())
    except ValueError:  # a builtin without a signature
        return False
    except TypeError as error:
        raise ConfigError(
            f"handler {show(handler)} with signature {show(str(inspect.signature(handler)))} cannot"
            " be called with one message; it must take exactly one positional argument"
        ) from error
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise ConfigError(f"handler {show(handler)} must not yield; use async def and await inside")
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with async __call__
    )


def _max_retries(max_retries: int | str | None, policy: RetryPolicy | None) -> int | None:
    if max_retries is not None:
        return check_max_retries(max_retries)
    return policy.max_retries if isinstance(policy, RetryPolicy) else None


def _policy(policy: RetryPolicy | None) -> RetryPolicy | None:
    if policy is not None and not isinstance(policy, RetryPolicy):
        refuse("policy", policy, "must be a RetryPolicy, such as RetryPolicy.ladder('10s 30s')")
    return policy


def _none_is(none_is: str | None, annotated: bool) -> bool:  # noqa: FBT001 - private
    if none_is is None:
        return annotated
    if none_is not in ("failure", "success"):
        refuse("none_is", none_is, 'must be "failure" or "success"')
    return none_is == "success"


def _place(handler: Handler) -> str:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "?"
