"""What a group may be and become: its kind, its order, what it consumes, and where it begins.

A group consumes topics, or, as `%DLQ%<group>`, the dead letters of one other group, for good. In
the second case its lists are inside the partitions of the other group and it is in no route: what
it gets is not published to it, but fed from the dead letters (docs/decisions/0020).
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rqretry.core.catalog_records import BROADCAST, SIMPLE, GroupRecord
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.limits import DLQ, KEEP, UNLIMITED, Keep, check_max_inflight, check_max_retries
from rqretry.core.rates import Rate, check_rate_limit
from rqretry.core.retry_policy import RetryPolicy
from rqretry.core.start import LATEST

log = logging.getLogger("rqretry")

_LIMITS = frozenset({"max_inflight", "rate_limit", "dlq_retention_ms"})
"""Settings that are 0 or "" where there is no limit."""


def source_of(group: str, topics: Iterable[str]) -> str:
    """Whose dead letters a consumer names as its topic; "" for none. Raises InvalidArgument."""
    names = list(topics)
    sources = [name.removeprefix(DLQ) for name in names if name.startswith(DLQ)]
    if not sources:
        return ""
    if len(names) > 1 or sources[0] == group:
        raise InvalidArgument(
            f"group {show(group)} consumes {show(', '.join(names))}: dead letters are consumed by"
            " a group of their own, which consumes nothing else; use another group name"
        )
    return sources[0]


def check_has_dead_letters(source: GroupRecord, group: str) -> None:
    """Whether another group can consume the dead letters of `source`. Raises ConfigError."""
    if source.kind == BROADCAST:
        raise ConfigError(
            f"group {show(source.name)} is a broadcast group and has no dead letters, so group"
            f" {show(group)} cannot consume {show(DLQ + source.name)}"
        )
    if source.source:
        raise ConfigError(
            f"group {show(source.name)} consumes the dead letters of {show(source.source)} and has"
            f" none itself, so group {show(group)} cannot consume {show(DLQ + source.name)}"
        )


def check_unordered(group: str, source: str, ordered: bool | None) -> None:  # noqa: FBT001 - a field
    """Dead letters have no order. Raises InvalidArgument."""
    if source and ordered:
        raise InvalidArgument(
            f"group {show(group)} consumes dead letters of {show(source)}, which have no order:"
            " remove ordered=True"
        )


def check_shares(group: str, max_inflight: int, partitions: int) -> None:
    """Every partition needs a share of max_inflight, or would never deliver. Raises ConfigError."""
    if 0 < max_inflight < partitions:
        raise ConfigError(
            f"max_inflight {max_inflight} of group {show(group)}: it is split over the partitions"
            f" of the group's topics, which are {partitions}; give at least as many"
        )


def check_kind(record: GroupRecord, kind: str, ordered: bool | None) -> None:  # noqa: FBT001 - a field
    """A group is of one kind, and ordered or not, for good. Raises ConfigError."""
    if ordered is not None and ordered != record.ordered:
        was, is_ = ("ordered", "not") if record.ordered else ("not ordered", "ordered")
        raise ConfigError(
            f"group {show(record.name)} is {was} and this consumer of it is {is_}: name the same"
            " (ordered=), delete the group first, or use another group name"
        )
    if record.kind == kind:
        return
    what = {SIMPLE: "a simple consumer"}.get(record.kind, f"a {record.kind} consumer")
    raise ConfigError(
        f"group {show(record.name)} is the group of {what} and cannot also be {kind};"
        " use another group name"
    )


def check_same_source(record: GroupRecord, source: str, topics: Iterable[str]) -> None:
    """A group consumes topics, or one group's dead letters, for good. Raises ConfigError."""
    if source and record.kind == BROADCAST:
        raise ConfigError(
            f"group {show(record.name)} is a broadcast group and cannot consume"
            f" {show(DLQ + source)}: remove broadcast=True"
        )
    if source and record.ordered:
        raise ConfigError(
            f"group {show(record.name)} is ordered and cannot consume {show(DLQ + source)}: dead"
            " letters have no order; remove ordered=True"
        )
    if record.source == source or not (record.source or record.topics or record.leaving):
        return
    has = DLQ + record.source if record.source else ", ".join((*record.topics, *record.leaving))
    wanted = DLQ + source if source else ", ".join(topics)
    raise ConfigError(
        f"group {show(record.name)} consumes {show(has)} and cannot also consume {show(wanted)};"
        " use another group name"
    )


def refuse_ordered(record: GroupRecord) -> None:
    """What is stored is found in no order. Raises InvalidArgument for an ordered group."""
    if record.ordered:
        raise InvalidArgument(
            f"group {show(record.name)} is ordered, so it cannot begin with what is stored, which"
            ' is found in no order; use "latest", or make it the first group of its topic'
        )


def refuse_tags(group: str, topics: Iterable[str], tags: Iterable[tuple[str, str]]) -> None:
    """What is stored is given unfiltered. Raises InvalidArgument for a group that wants a part."""
    filtered = dict(tags)
    for topic in topics:
        if topic in filtered:
            raise InvalidArgument(
                f"group {show(group)} takes only tags {show(filtered[topic])} of topic"
                f" {show(topic)}, so it cannot begin with what is stored, which is given"
                ' unfiltered; use "latest", or take every tag'
            )


def with_topics(
    record: GroupRecord, topics: Iterable[str], changes: Mapping[str, Any], *, start: str | int
) -> dict[str, Any]:
    """The changes of a group's record with topics to subscribe to. Raises InvalidArgument."""
    new = tuple(name for name in topics if name not in record.topics)
    if start == LATEST:
        return {**changes, "topics": record.topics + new}
    refuse_ordered(record)
    refuse_tags(record.name, new, changes.get("tags", record.tags))
    behind, begins_ms = record.catching_up + new, start if isinstance(start, int) else 0
    changed = {"topics": record.topics + new, "catching_up": behind}
    return {**changes, **changed, "begins_ms": begins_ms if new else record.begins_ms}


def against_pins(record: GroupRecord, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a start names and an operator has pinned to something else."""
    return {
        field: value
        for field, value in settings.items()
        if field in record.pinned and getattr(record, field) != value
    }


def warn_of_pins(record: GroupRecord, ignored: Mapping[str, Any]) -> None:
    """Log the settings that a start names and that change nothing."""
    pinned = " and ".join(
        f"{field} is pinned to {getattr(record, field)}, not {value}"
        for field, value in ignored.items()
    )
    log.warning(
        "group %s: %s; this start changes nothing (unpin it with: rqretry group set)",
        record.name,
        pinned,
    )


def warn_of_tags(record: GroupRecord, before: Mapping[str, str]) -> None:
    """Log that a start changes what its group takes, for every instance of it."""
    for topic, tags in before.items():
        log.warning(
            "group %s took %s of topic %s and takes %s from now on, in every instance; what was"
            " published before stays as it was chosen",
            record.name, tags, topic, record.tags_of(topic),
        )  # fmt: skip


def warn_of_comma(group: str, tags: str) -> None:
    """Log a tag that looks like several: a comma may be part of one."""
    for tag in tags.split(" || "):
        if "," in tag:
            log.warning(
                "group %s takes tag %s, which is one tag with a comma in it: for several write %s",
                group, show(tag), show(" || ".join(filter(None, tag.split(",")))),
            )  # fmt: skip


def group_settings(
    max_retries: int | str | None,
    policy: RetryPolicy | str | None,
    max_inflight: int | str | Keep | None = KEEP,
    rate_limit: Rate | Keep | None = KEEP,
) -> dict[str, Any]:
    """The given settings, checked; those that are None stay as they are."""
    settings: dict[str, Any] = {}
    if policy is not None:
        parsed = policy if isinstance(policy, RetryPolicy) else RetryPolicy.parse(policy)
        settings["policy"] = replace(parsed, max_retries=None)
        if parsed.max_retries is not None:
            settings["max_retries"] = parsed.max_retries
    if max_retries is not None:
        settings["max_retries"] = check_max_retries(max_retries)
    if max_inflight is not KEEP:
        settings["max_inflight"] = check_max_inflight(max_inflight)
    if rate_limit is not KEEP:
        settings["rate_limit"] = check_rate_limit(rate_limit)
    return settings


def in_words(settings: Mapping[str, Any]) -> dict[str, str]:
    """Checked settings as a caller would give them, with "unlimited" and "none"."""
    return {name: _in_words(name, value) for name, value in settings.items()}


def _in_words(name: str, value: object) -> str:
    if name == "max_retries" and value == UNLIMITED:
        return "unlimited"
    return "none" if name in _LIMITS and not value else str(value)
