"""What consumers of each kind may be given, and the rules for batches."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Required, TypedDict

from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.limits import check_count
from rqretry.core.rates import Rate
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.start import Start

BATCH_CONCURRENCY = 4
BATCH_WAIT_S = 0.05
MAX_BATCH = 1024
_WAIT_SHARE = 4
"""A batch may wait for so many-th of what its messages have until they are given back, or fail."""

AnyOptions = Mapping[str, Any]
"""ConsumerOptions or BatchConsumerOptions, before they are checked."""
Exceptions = type[BaseException] | Sequence[type[BaseException]] | None


class ConsumerOptions(TypedDict, total=False):
    """The options of `@app.consumer` and `@app.task`.

    Attributes:
        max_retries: 0 or more, or "unlimited"; at most max_retries + 1 deliveries. Not given: the
            group's own, 16 at first, and "unlimited" for an ordered group.
        policy: When a failed message is tried again. Not given: the group's own, RocketMQ's ladder
            at first.
        tags: Only messages with one of these tags, such as "paid || refunded"; "*" for every
            message. It is about what is published from now on, and every instance of the group.
            Not given: as it was, everything at first.
        max_inflight: Messages of the group under a lease at once, over all its workers, split over
            the partitions of its topics; "none" for no limit. Not given: the group's own.
        rate_limit: Deliveries to the group in a time, over all its workers: "100/s", "100/m",
            "100/h", or a number for so many a second; "none" for no limit. Not given: the group's
            own.
        ordered: Handle the messages of one message group one at a time over all workers, in the
            order of publishing; a failed one is tried again after a fixed interval (1 s; 10 ms to
            30 s with policy=RetryPolicy.fixed(...)), and only its message group waits. Default
            False.
        concurrency: Attempts at once in one process; default 64 for async functions, 16 for
            threads, one per core with process=True.
        visibility: The lease, 0.1 s to 12 h, renewed while the handler runs; default 30 s. A
            killed worker's messages are delivered again when it ends.
        consume_timeout: When a running attempt has failed, counted from its lease; default 15 min.
        max_postpones: How often one message may be postponed before that counts as a failure;
            default 1000.
        none_is: What None means, "failure" or "success"; default by the handler's annotation. Not
            for a task, whose return value means nothing.
        process: Run a plain function in a process of its own: for CPU-bound work. Default False.
        retry_on: Only these exceptions are retried, all others are dead-lettered; default all.
        dead_letter_on: These exceptions are dead-lettered at once; default none.
        start: Where the group begins in a topic that is new to it: "latest" (the default: what is
            published from then on), "earliest" (what is still stored, too) or a time (an aware
            datetime, or seconds since the epoch: also what was consumed since then, where that is
            kept).
        broadcast: True: every running consumer of the group gets every message that is published
            while it runs. Nothing is leased, retried or dead-lettered, so the options about that
            cannot be given; a failure is logged and counted. A name: the same, and a consumer goes
            on where it was when it starts again; each running one has a name of its own. Default
            False.
    """

    max_retries: int | str | None
    policy: RetryPolicy | None
    tags: str | None
    max_inflight: int | str | None
    rate_limit: Rate | None
    ordered: bool
    concurrency: int | None
    visibility: Duration
    consume_timeout: Duration
    max_postpones: int
    none_is: Literal["failure", "success"] | None
    process: bool
    retry_on: Exceptions
    dead_letter_on: Exceptions
    start: Start
    broadcast: bool | str


class BatchConsumerOptions(ConsumerOptions, total=False):
    """The options of `@app.consumer` for a handler that takes a list of messages.

    Attributes:
        batch: The most messages of one call, 1 to 1024. `concurrency` is then the batches at once
            in one process: 4 by default, one per core with process=True, always 1 where ordered.
        batch_wait: How long a batch that is not full waits for more, counted from its first
            message; at most a quarter of `visibility` and of `consume_timeout`. Default 50 ms.
    """

    batch: Required[int]
    batch_wait: Duration


class SimpleConsumerOptions(TypedDict, total=False):
    """The options of `simple_consumer`.

    Attributes:
        create_group: Create the group if it is not there; default False.
        max_retries: At most max_retries + 1 deliveries; default the group's own.
        tags: What the group takes of these topics from now on, such as "a || b"; "*" for
            everything. Default as it was.
        ordered: Whether the group gets one message of a message group at a time, in order; it
            never changes. Default as the group is; a new one is not.
        start: Where the group begins in a topic that is new to it: "latest" (what is published
            from then on, the default), "earliest" (what is still stored, too) or a time (an aware
            datetime, or seconds since the epoch: also what was consumed since then, where that is
            kept).
        max_postpones: How often one message may be released; default 1000.
    """

    create_group: bool
    max_retries: int | str | None
    tags: str | None
    ordered: bool | None
    start: Start
    max_postpones: int


def check_batch(options: AnyOptions) -> int:
    """The most messages of one call; 0: each by itself. Raises InvalidArgument."""
    if options.get("batch") is None:
        if options.get("batch_wait") is not None:
            refuse("batch_wait", options["batch_wait"], "needs batch=, such as batch=100")
        return 0
    batch = check_count(options["batch"], name="batch", maximum=MAX_BATCH)
    concurrency = options.get("concurrency")
    if options.get("ordered") and concurrency not in (None, 1):
        raise InvalidArgument(
            f"concurrency={show(concurrency)} cannot be given with batch= and ordered=True, where"
            " one batch runs at a time in each process: remove concurrency"
        )
    return batch


def check_batch_wait(options: AnyOptions, shortest_s: float) -> int:
    """How long a batch waits for more, in milliseconds. Raises InvalidArgument.

    Args:
        options: What the consumer was given.
        shortest_s: The shorter of visibility and consume_timeout.
    """
    most = shortest_s / _WAIT_SHARE
    given = options.get("batch_wait", min(BATCH_WAIT_S, most))
    wait_ms = milliseconds(given, name="batch_wait")
    if wait_ms > most * 1000:
        refuse(
            "batch_wait",
            given,
            f"must be at most {most:g} s, a quarter of visibility and of consume_timeout: shorten"
            " it, or raise those",
        )
    return wait_ms


def batch_concurrency(options: AnyOptions, one_by_one: int) -> int:
    """The batches at once in one process, where the consumer names no number.

    Args:
        options: What the consumer was given.
        one_by_one: What the default is for single messages.
    """
    if options.get("ordered"):
        return 1
    return one_by_one if options.get("process") else BATCH_CONCURRENCY
