"""What `rqretry worker` prints at its start: what it will do, and on which server."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from rqretry.app import App
from rqretry.checks.check_result import Finding
from rqretry.cli.output import clean
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core import retry_policy
from rqretry.core.catalog_records import PUSH, GroupRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS, LevelTable
from rqretry.core.errors import GroupNotFound
from rqretry.core.limits import DLQ, UNLIMITED
from rqretry.core.parts import parts_of
from rqretry.core.rates import describe_limits
from rqretry.core.retry_policy import RetryPolicy
from rqretry.observability.log_format import JsonFormatter
from rqretry.version import __version__

_NOT_REACHED = " (cannot be reached yet; the workers keep trying)"


def announce(lines: Iterable[str], *, as_json: bool, level: int = logging.INFO) -> None:
    """Print to standard output what is known before there is anything to log.

    As JSON where logs are: one object for each line, with those that are indented under it.
    """
    if not as_json:
        for line in lines:
            click.echo(clean(line))
        return
    entries: list[str] = []
    for line in lines:
        text = " ".join(line.split())
        if line.startswith(" "):
            entries[-1] += f"; {text}"
        else:
            entries.append(text)
    for entry in entries:
        record = logging.LogRecord("rqretry", level, __file__, 0, entry, None, None)
        click.echo(JsonFormatter().format(record))


def print_banner(
    app: App,
    findings: Sequence[Finding],
    named: str,
    *,
    reached: bool,
    processes: int,
    concurrency: int | None,
    as_json: bool = False,
) -> None:
    """Print it to standard output."""
    settings = parts_of(app).settings
    count = "1 process" if processes == 1 else f"{processes} processes"
    lines = [
        f"rqretry {__version__}: {count}, namespace {settings.namespace}",
        f"Redis    {settings.url.safe}{'' if reached else _NOT_REACHED}",
        f"         named by {named}",
    ]
    for spec in parts_of(app).consumers:
        lines += _consumer(app, spec, reached=reached, concurrency=concurrency)
    announce(lines, as_json=as_json)
    for finding in findings:
        if finding.severity != "ok":
            text = f"{finding.severity}  {finding.sentence}; {finding.fix}"
            announce([text], as_json=as_json, level=logging.WARNING)


def _consumer(
    app: App, spec: ConsumerSpec, *, reached: bool, concurrency: int | None
) -> Iterator[str]:
    runs = "async" if spec.is_async else "threads"
    topics = ", ".join(spec.topics)
    plural = "topic" if len(spec.topics) == 1 else "topics"
    yield f"handler  {spec.name}: group {spec.group}, {plural} {topics}"
    of = f" batches of up to {spec.batch}" if spec.batch else ""
    yield f"         {spec.at_once(concurrency)}{of} at once in each process ({runs})"
    record, levels = GroupRecord.new(spec.group, PUSH, ordered=spec.ordered), DEFAULT_LEVELS
    if reached and not spec.broadcast:
        record, levels = _stored(app, record)
    yield f"         {describe_retries(spec, record, levels)}"
    if limits := _describe_limits(spec, record):
        yield f"         at most {limits}, over all workers"
    yield f"         None means {'success' if spec.none_is_success else 'failure'}"


def describe_retries(spec: ConsumerSpec, record: GroupRecord, levels: LevelTable) -> str:
    """What happens to a failed message once the worker has started."""
    if spec.broadcast:
        return "broadcast: every running consumer gets every message; a failure is not retried"
    retries: int = _holds(spec, record, "max_retries")
    policy: RetryPolicy = _holds(spec, record, "policy")
    end = "dropped" if spec.topics[0].startswith(DLQ) else DLQ + spec.group
    then = "" if retries == UNLIMITED else f", then {end}"
    return retry_policy.describe(policy, retries, levels.ms) + then


def _describe_limits(spec: ConsumerSpec, record: GroupRecord) -> str:
    rate_limit: str = _holds(spec, record, "rate_limit")
    return describe_limits(rate_limit, _holds(spec, record, "max_inflight"))


def _holds(spec: ConsumerSpec, record: GroupRecord, field: str) -> Any:
    """What the handler names, unless an operator has pinned the group's own."""
    named = getattr(spec, field)
    return getattr(record, field) if named is None or field in record.pinned else named


def _stored(app: App, default: GroupRecord) -> tuple[GroupRecord, LevelTable]:
    store, catalog = parts_of(app.client).store, parts_of(app.client).catalog
    levels = store.perform(catalog.open())
    try:
        return store.perform(catalog.groups.get(default.name)), levels
    except GroupNotFound:
        return default, levels
