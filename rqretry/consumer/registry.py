"""What `@app.consumer` registers: handlers with their group, topics and settings, all checked."""

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from rqretry.consumer.handler_binding import (
    BatchBinding,
    Binding,
    TaskBinding,
    address,
    bind,
    bind_batch,
)
from rqretry.consumer.options import (
    AnyOptions,
    BatchConsumerOptions,
    batch_concurrency,
    check_batch,
    check_batch_wait,
)
from rqretry.core import retry_policy
from rqretry.core.consume_result import (
    ConsumeResult,
    classify_return,
    classify_task_return,
    none_means_success,
    return_annotation,
)
from rqretry.core.durations import milliseconds
from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.core.limits import (
    DLQ,
    MAX_GROUP,
    MAX_POSTPONES,
    check_count,
    check_flag,
    check_function,
    check_group,
    check_max_inflight,
    check_max_retries,
    check_name,
    check_options,
    check_sources,
    check_tags,
)
from rqretry.core.rates import check_rate_limit
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.start import LATEST, check_start

T = TypeVar("T")

ASYNC_CONCURRENCY = 64
SYNC_CONCURRENCY = 16
MAX_CONCURRENCY = 10_000
VISIBILITY_S = 30
CONSUME_TIMEOUT_S = 900
_LEAST_VISIBILITY_S, _MOST_VISIBILITY_S = 0.1, 12 * 3600

_ABOUT_LEASES = (
    "max_retries", "policy", "max_inflight", "rate_limit", "visibility", "max_postpones",
    "retry_on", "dead_letter_on", "ordered",
)  # fmt: skip
"""Options that mean nothing to a broadcast consumer."""

Handler = Callable[..., Any]
AnyBinding = Binding | BatchBinding | TaskBinding


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
        tags: The same: what the group takes of these topics, "*" for everything.
        max_inflight: The same; 0 is no limit.
        rate_limit: The same; "" is no limit.
        ordered: One message of a message group at a time, in order.
        concurrency: Attempts at once in one process.
        visibility_ms: The lease, renewed while the handler runs.
        consume_timeout_ms: Counted from the lease.
        max_postpones: How often one message may be postponed.
        none_is_success: What None means.
        location: file:line of the handler.
        binding: Which parameter gets what.
        in_process: Runs in processes of its own.
        retry_on: Only these exceptions are retried; None is all.
        dead_letter_on: These exceptions go to the dead-letter queue at once.
        start: Where the group begins in a topic that is new to it.
        broadcast: Every running consumer gets every message; nothing is leased or retried.
        reader: The name under which a broadcast consumer's position is kept; "": it is not.
        batch: The most messages of one call; 0: the handler takes single messages.
        batch_wait_ms: How long a batch that is not full waits for more.
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
    location: str
    binding: AnyBinding
    in_process: bool = False
    retry_on: tuple[type[BaseException], ...] | None = None
    dead_letter_on: tuple[type[BaseException], ...] = ()
    tags: str | None = None
    ordered: bool = False
    start: str | int = LATEST
    max_inflight: int | None = None
    rate_limit: str | None = None
    broadcast: bool = False
    reader: str = ""
    batch: int = 0
    batch_wait_ms: int = 0

    def at_once(self, concurrency: int | None) -> int:
        """How many calls run at once where the worker names a number, or None."""
        return (
            concurrency if concurrency and not (self.batch and self.ordered) else self.concurrency
        )

    @property
    def name(self) -> str:
        """The handler's qualified name."""
        return getattr(self.handler, "__qualname__", repr(self.handler))

    def return_reader(self) -> Callable[[object], ConsumeResult]:
        """What reads the function's return value."""
        if self.is_task:
            return classify_task_return
        return partial(classify_return, none_is_success=self.none_is_success)

    @property
    def is_task(self) -> bool:
        """Made by `@app.task`: only an exception fails it."""
        return isinstance(self.binding, TaskBinding)

    def retries_on(self, error: BaseException) -> bool:
        """Whether this exception is worth another attempt."""
        if isinstance(error, self.dead_letter_on):
            return False
        return self.retry_on is None or isinstance(error, self.retry_on)


class Registry:
    """The consumers of an app."""

    def __init__(self) -> None:
        self.consumers: list[ConsumerSpec] = []

    def add(
        self,
        handler: Handler,
        topics: str | Sequence[str],
        group: str,
        options: AnyOptions,
        *,
        binding: Binding | TaskBinding | None = None,
        body_type: Any = None,
    ) -> ConsumerSpec:
        """Check and keep a handler. Raises InvalidArgument, ConfigError."""
        check_function("handler", handler)
        check_options(options, BatchConsumerOptions, "consumer option")
        names = check_sources(topics)
        if binding is not None and "batch" in options:
            refuse(
                "batch",
                options["batch"],
                "is not for tasks and schedules: remove it",
            )
        bound = binding or (bind_batch if check_batch(options) else bind)(handler, body_type)
        spec = _spec(handler, names, group, options, bound)
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
                    f" {other.name} ({other.location}) and {spec.name} ({spec.location});"
                    " give one of them another group"
                )


def _spec(
    handler: Handler,
    topics: Sequence[str],
    group: str,
    options: AnyOptions,
    binding: AnyBinding,
) -> ConsumerSpec:
    process = check_flag("process", options.get("process", False))
    policy = _policy(options.get("policy"))
    is_async = _check_handler(handler)
    if process:
        _check_process(handler, is_async=is_async)
    batch, concurrency = check_batch(options), options.get("concurrency")
    if concurrency is None:
        one = _default_concurrency(is_async, process)
        concurrency = batch_concurrency(options, one) if batch else one
    retry_on, deadly = options.get("retry_on"), options.get("dead_letter_on")

    def ms(name: str, default: float, least: float, most: float | None = None) -> int:
        given: Any = options.get(name, default)
        return milliseconds(given, name=name, minimum=least, maximum=most)

    visibility_ms = ms("visibility", VISIBILITY_S, _LEAST_VISIBILITY_S, _MOST_VISIBILITY_S)
    consume_timeout_ms = ms("consume_timeout", CONSUME_TIMEOUT_S, 0.001)
    shortest_s = min(visibility_ms, consume_timeout_ms) / 1000
    return ConsumerSpec(
        handler=handler,
        topics=tuple(dict.fromkeys(topics)),
        group=check_group(group),
        is_async=is_async,
        max_retries=_max_retries(options.get("max_retries"), policy),
        policy=policy,
        concurrency=check_count(concurrency, name="concurrency", maximum=MAX_CONCURRENCY),
        visibility_ms=visibility_ms,
        consume_timeout_ms=consume_timeout_ms,
        max_postpones=check_count(
            options.get("max_postpones", MAX_POSTPONES), name="max_postpones", minimum=0
        ),
        none_is_success=_none_is(options.get("none_is"), binding, handler),
        location=_location(handler),
        binding=binding,
        in_process=process,
        retry_on=None if retry_on is None else _exceptions("retry_on", retry_on),
        dead_letter_on=_exceptions("dead_letter_on", () if deadly is None else deadly),
        tags=_if_given(check_tags, options.get("tags")),
        ordered=_ordered(options.get("ordered", False), policy),
        start=check_start(options.get("start", LATEST)),
        max_inflight=_if_given(check_max_inflight, options.get("max_inflight")),
        rate_limit=_if_given(check_rate_limit, options.get("rate_limit")),
        broadcast=_broadcast(options, topics),
        reader=_reader(options),
        batch=batch,
        batch_wait_ms=check_batch_wait(options, shortest_s) if batch else 0,
    )


def _broadcast(options: AnyOptions, topics: Sequence[str]) -> bool:
    given: object = options.get("broadcast", False)
    if not isinstance(given, bool | str):
        refuse("broadcast", given, "must be True, False or a name")
    wanted = given is not False
    senseless = [name for name in _ABOUT_LEASES if options.get(name) is not None]
    if wanted and any(name.startswith(DLQ) for name in topics):
        raise InvalidArgument(
            "dead letters are not broadcast: remove broadcast=True for a DLQ topic"
        )
    if wanted and options.get("start", LATEST) != LATEST:
        raise InvalidArgument(
            f"start={show(options['start'])} cannot be given with broadcast=True: a broadcast"
            ' consumer gets what is published while it runs; remove it, or use "latest"'
        )
    if wanted and senseless:
        raise InvalidArgument(
            f"{senseless[0]} cannot be given with broadcast=True: nothing is leased, retried or"
            " dead-lettered there"
        )
    return wanted


def _reader(options: AnyOptions) -> str:
    given = options.get("broadcast", False)
    return check_name("broadcast", given, MAX_GROUP) if isinstance(given, str) else ""


def _check_handler(handler: Handler) -> bool:
    if inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler):
        raise ConfigError(f"handler {show(handler)} must not yield; use async def and await inside")
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with async __call__
    )


def _check_process(handler: Handler, *, is_async: bool) -> None:
    if is_async:
        raise InvalidArgument(
            f"handler {show(handler)} is async and cannot run with process=True, which is for"
            " CPU-bound work; use a plain function"
        )
    address(handler)


def _default_concurrency(is_async: bool, process: bool) -> int:  # noqa: FBT001 - private
    if process:
        return os.cpu_count() or 1
    return ASYNC_CONCURRENCY if is_async else SYNC_CONCURRENCY


def _exceptions(name: str, given: Any) -> tuple[type[BaseException], ...]:
    one = isinstance(given, type | str) or not isinstance(given, Iterable)
    listed: tuple[Any, ...] = (given,) if one else tuple(given)
    for each in listed:
        if not _is_exception(each):
            refuse(name, each, "must be an exception class, or a list of them")
    return listed


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _max_retries(max_retries: int | str | None, policy: RetryPolicy | None) -> int | None:
    if max_retries is not None:
        return check_max_retries(max_retries)
    return policy.max_retries if isinstance(policy, RetryPolicy) else None


def _if_given(check: Callable[[Any], T], value: object) -> T | None:
    return None if value is None else check(value)


def _policy(policy: RetryPolicy | None) -> RetryPolicy | None:
    if policy is not None and not isinstance(policy, RetryPolicy):
        refuse("policy", policy, "must be a RetryPolicy, such as RetryPolicy.ladder('10s 30s')")
    return policy


def _ordered(given: object, policy: RetryPolicy | None) -> bool:
    ordered = check_flag("ordered", given)
    if ordered and policy is not None:
        retry_policy.check_ordered(policy)
    return ordered


def _none_is(none_is: str | None, binding: AnyBinding, handler: Handler) -> bool:
    if none_is is None:
        return isinstance(binding, TaskBinding) or none_means_success(return_annotation(handler))
    if none_is not in ("failure", "success"):
        refuse("none_is", none_is, 'must be "failure" or "success"')
    if isinstance(binding, TaskBinding):
        refuse("none_is", none_is, "is not for tasks: only an exception fails one; remove it")
    return none_is == "success"


def _location(handler: Handler) -> str:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else "?"
