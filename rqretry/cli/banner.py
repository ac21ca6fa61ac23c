"""What `rqretry worker` prints at its start: what it will do, and on which server."""

from collections.abc import Sequence
from typing import Any

import click

from rqretry.app import App
from rqretry.checks.check_result import Finding
from rqretry.cli.output import clean
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.catalog_records import PUSH, GroupRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import GroupNotFound
from rqretry.core.limits import DLQ, UNLIMITED
from rqretry.core.rates import describe_limits
from rqretry.core.retry_policy import RetryPolicy
from rqretry.version import __version__

_NOT_REACHED = " (cannot be reached yet; the workers keep trying)"


def print_banner(
    app: App,
    findings: Sequence[Finding],
    named: str,
    *,
    reached: bool,
    processes: int,
    concurrency: int | None,
) -> None:
    """Print it to standard output."""
    settings = app.settings
    count = "1 process" if processes == 1 else f"{processes} processes"
    _echo(f"rqretry {__version__}: {count}, namespace {settings.namespace}")
    _echo(f"Redis    {settings.url.safe}{'' if reached else _NOT_REACHED}")
    _echo(f"         named by {named}")
    for spec in app.consumers:
        _print_consumer(app, spec, reached=reached, concurrency=concurrency)
    for finding in findings:
        if finding.severity != "ok":
            _echo(f"{finding.severity}  {finding.sentence}; {finding.fix}")


def _print_consumer(
    app: App, spec: ConsumerSpec, *, reached: bool, concurrency: int | None
) -> None:
    runs = "async" if spec.is_async else "threads"
    topics = ", ".join(spec.topics)
    plural = "topic" if len(spec.topics) == 1 else "topics"
    _echo(f"handler  {spec.name}: group {spec.group}, {plural} {topics}")
    _echo(f"         {concurrency or spec.concurrency} at once in each process ({runs})")
    record, levels = GroupRecord.new(spec.group, PUSH, ordered=spec.ordered), DEFAULT_LEVELS
    if reached and not spec.broadcast:
        record, levels = _stored(app, record)
    _echo(f"         {describe_retries(spec, record, levels)}")
    if limits := _describe_limits(spec, record):
        _echo(f"         at most {limits}, over all workers")
    _echo(f"         None means {'success' if spec.none_is_success else 'failure'}")


def describe_retries(spec: ConsumerSpec, record: GroupRecord, levels: LevelTable) -> str:
    """What happens to a failed message once the worker has started."""
    if spec.broadcast:
        return "broadcast: every running consumer gets every message; a failure is not retried"
    retries: int = _holds(spec, record, "max_retries")
    policy: RetryPolicy = _holds(spec, record, "policy")
    end = "dropped" if spec.topics[0].startswith(DLQ) else DLQ + spec.group
    then = "" if retries == UNLIMITED else f", then {end}"
    return policy.describe(retries, levels.ms) + then


def _describe_limits(spec: ConsumerSpec, record: GroupRecord) -> str:
    rate_limit: str = _holds(spec, record, "rate_limit")
    return describe_limits(rate_limit, _holds(spec, record, "max_inflight"))


def _holds(spec: ConsumerSpec, record: GroupRecord, field: str) -> Any:
    """What the handler names, unless an operator has pinned the group's own."""
    named = getattr(spec, field)
    return getattr(record, field) if named is None or field in record.pinned else named


def _stored(app: App, default: GroupRecord) -> tuple[GroupRecord, LevelTable]:
    store, catalog = app.client.store, app.client.catalog
    levels = store.perform(catalog.open())
    try:
        return store.perform(catalog.groups.get(default.name)), levels
    except GroupNotFound:
        return default, levels


def _echo(line: str) -> None:
    click.echo(clean(line))
