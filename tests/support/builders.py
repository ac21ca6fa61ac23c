"""Small valid arguments for the verbs, so that a test names only what it is about."""

from typing import Any

from rqretry.core import retry_policy
from rqretry.core.delay_levels import LevelTable
from rqretry.core.history_notes import Noted
from rqretry.core.receipt import Receipt
from rqretry.core.retry_policy import RetryPolicy
from rqretry.protocol.lease import Failure
from rqretry.protocol.publish import Prepared

SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE

LEVELS = LevelTable.parse("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def group_fields(byte: int, **changes: Any) -> dict[str, str | int | bytes]:
    """A push group with the default ladder and 16 retries, as `configure` takes it."""
    compiled = retry_policy.compiled(RetryPolicy.rocketmq(), LEVELS.ms)
    fields: dict[str, str | int | bytes] = {
        "kind": "push",
        "max_retries": 16,
        "delays": " ".join(map(str, compiled.delays_ms)),
        "levels": LEVELS.encode(),
        "jitter": "0",
        "byte": bytes((byte,)),
    }
    return fields | changes


def prepared(
    id_: str,
    body: str | bytes | None = None,
    *,
    digest: str = "",
    delay_ms: int | str = "",
    tag: str = "",
    group: str = "",
    keys: tuple[str, ...] = (),
) -> Prepared:
    """A message on its way to the server."""
    data = f"body of {id_}" if body is None else body
    return Prepared(
        id_,
        data.encode() if isinstance(data, str) else data,
        digest,
        delay_ms,
        Noted(tag or None, keys, group or None) if tag or group or keys else None,
    )


def failure(
    id_: str,
    lease_no: int = 1,
    *,
    level: int = 0,
    delay_ms: int | str = "",
    random: float = 0.5,
    cause: str = "failure",
    record: str = '{"c":"failure"}',
) -> Failure:
    """A failed attempt by the ladder, without a traceback."""
    return Failure(Receipt(id_, lease_no), level, delay_ms, random, cause, record)


def first(*ids: str) -> list[Receipt]:
    """The receipts of first leases."""
    return [Receipt(id_, 1) for id_ in ids]
