"""The options of the data source, read and checked on the driver before anything runs."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from rqretry.core.durations import seconds
from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.limits import check_group, check_topic, read_whole
from rqretry.core.settings import Settings
from rqretry.spark.position import EARLIEST, LATEST, Wanted, read_offsets

HISTORY, DEAD_LETTERS, MESSAGES = "history", "dead_letters", "messages"
KINDS = (HISTORY, DEAD_LETTERS, MESSAGES)
ALL_TOPICS = "*"
# Spark hands these to every source or sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
# Properties of a table, which Spark hands to its source while the table is made.
_TABLES_OWN = frozenset({"provider", "owner", "location", "comment", "external"})
_BOOLEANS = {"true": True, "false": False}
_TOPICS = ("topic", "subscribe", "subscribePattern")
_REFUSED = {
    "assign": "name partitions in startingOffsets and endingOffsets, or filter by partition",
    "startingoffsetsbytimestamp": "write times into startingOffsets, as milliseconds",
    "endingoffsetsbytimestamp": "write times into endingOffsets, as milliseconds",
    "columns": "give the read a schema with the columns you want, as in .schema('event string')",
}
"""Options of other sources that there are not here, and what to do."""
MAX_BATCH_SIZE = 500
FETCH_SIZE = 20_000
MAX_FETCH_SIZE = 100_000


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a read or a write; see docs/spark.md."""

    settings: Settings = field(repr=False)
    topic: str
    kind: str = HISTORY
    group: str | None = None
    starting: Wanted | None = None
    ending: Wanted | None = None
    pattern: str | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    max_per_trigger: int | None = None
    min_per_trigger: int | None = None
    max_trigger_delay_s: float | None = None
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    fetch_size: int = FETCH_SIZE
    batch_size: int = MAX_BATCH_SIZE
    id_column: str | None = None
    job_id: str | None = None
    push_filters: bool = False

    @property
    def topics(self) -> tuple[str, ...] | None:
        """The topics to read; None for all of the namespace, or those that the pattern takes."""
        if self.topic == ALL_TOPICS:
            return None
        return tuple(check_topic(name.strip()) for name in self.topic.split(","))

    @property
    def starts(self) -> Wanted | None:
        """Where a read begins, as it is given; a time wins, as for Kafka."""
        return self.starting if self.starting_ms is None else str(self.starting_ms)

    @property
    def ends(self) -> Wanted | None:
        """Where a batch read ends, as it is given."""
        return self.ending if self.ending_ms is None else str(self.ending_ms)

    @property
    def target(self) -> str:
        """The one topic to write to. Raises InvalidArgument."""
        return check_topic(self.topic)


def read_options(given: Mapping[str, str]) -> Options:
    """Check every option.

    Raises:
        InvalidArgument: One is unknown, missing, or has a value that cannot be.
        ConfigError: The URL cannot work as it is written.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    _check_names(lowered)
    texts = {name: lowered[name.lower()] for name in NAMES if name.lower() in lowered}
    if texts.get("kind", HISTORY) not in KINDS:
        refuse("option kind", texts["kind"], f"must be one of {', '.join(KINDS)}")
    named = [name for name in _TOPICS if texts.get(name)]
    if not named:
        raise InvalidArgument(
            'option topic is missing: name a topic, several as "a,b", or "*" for all to read;'
            " Spark keeps the options of CREATE TABLE to itself: FROM t WITH (topic = 'a')"
        )
    if len(named) > 1:
        raise InvalidArgument(f"options {' and '.join(named)} name the topics: give one of them")
    texts["topic"] = texts.get("topic") or texts.pop("subscribe", None) or ALL_TOPICS
    settings = Settings.read(texts.get("url"), texts.get("namespace"))
    found = {
        name: read(f"option {option}", texts[option])
        for option, (name, read) in _READERS.items()
        if option in texts
    }
    options = Options(settings, **found)
    assert options.topics != ()
    return options


def given_options(**values: str | None) -> dict[str, str]:
    """The options that a job was given."""
    return {name: value for name, value in values.items() if value is not None}


def check_batch(options: Options) -> Options:
    """Options that a batch read does not have."""
    if options.max_per_trigger is not None:
        raise InvalidArgument("option maxOffsetsPerTrigger is for streaming reads: remove it")
    if options.min_per_trigger or options.max_trigger_delay_s:
        raise InvalidArgument(
            "options minOffsetsPerTrigger and maxTriggerDelay are for streaming reads: remove them"
        )
    if options.starts == LATEST:
        raise InvalidArgument('option startingOffsets "latest" would read nothing in a batch')
    if options.ends == EARLIEST:
        raise InvalidArgument('option endingOffsets "earliest" would read nothing')
    return _check_headers(options)


def check_stream(options: Options) -> Options:
    """Options that a streaming read does not have."""
    if options.kind != HISTORY:
        raise InvalidArgument(
            f"kind {show(options.kind)} cannot be read as a stream: only the history is a log;"
            " read it as a batch"
        )
    if options.ends is not None:
        name = "endingOffsets" if options.ending_ms is None else "endingTimestamp"
        raise InvalidArgument(f"option {name} is for batch reads: remove it")
    if options.max_trigger_delay_s and not options.min_per_trigger:
        raise InvalidArgument(
            "option maxTriggerDelay is how long minOffsetsPerTrigger may wait: give both"
        )
    return _check_headers(options)


def _check_headers(options: Options) -> Options:
    if options.include_headers and options.kind == HISTORY:
        raise InvalidArgument(
            "option includeHeaders is for kinds messages and dead_letters: the history has no"
            " headers"
        )
    return options


def _check_names(given: Iterable[str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name.startswith("option.") or name in _TABLES_OWN:
            continue
        if name in _REFUSED:
            raise InvalidArgument(f"there is no option {show(name)}: {_REFUSED[name]}")
        if name not in known and name not in _SPARKS_OWN:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {known[near[0]]}?" if near else f": {', '.join(NAMES)}"
            raise InvalidArgument(f"there is no option {show(name)}{hint}")


def _text(_name: str, text: str) -> str:
    return text


def _group(_name: str, text: str) -> str:
    return check_group(text)


def _count(name: str, text: str, most: int = 10**9) -> int:
    count = read_whole(text)
    if count is None or not 1 <= count <= most:
        refuse(name, text, f"must be a whole number from 1 to {most}")
    return count


def _flag(name: str, text: str) -> bool:
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        refuse(name, text, "must be true or false")
    return value


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        refuse(name, text, f"is not a regular expression: {error}")
    return text


def _seconds(name: str, text: str) -> float:
    return seconds(text, name=name, minimum=0.001)


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "topic": ("topic", _text),
    "subscribePattern": ("pattern", _pattern),
    "kind": ("kind", _text),
    "group": ("group", _group),
    "startingOffsets": ("starting", read_offsets),
    "endingOffsets": ("ending", read_offsets),
    "startingTimestamp": ("starting_ms", partial(_count, most=10**15)),
    "endingTimestamp": ("ending_ms", partial(_count, most=10**15)),
    "maxOffsetsPerTrigger": ("max_per_trigger", _count),
    "minOffsetsPerTrigger": ("min_per_trigger", _count),
    "maxTriggerDelay": ("max_trigger_delay_s", _seconds),
    "minPartitions": ("min_partitions", _count),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "includeHeaders": ("include_headers", _flag),
    "fetchSize": ("fetch_size", partial(_count, most=MAX_FETCH_SIZE)),
    "batchSize": ("batch_size", partial(_count, most=MAX_BATCH_SIZE)),
    "idColumn": ("id_column", _text),
    "jobId": ("job_id", _text),
    "pushFilters": ("push_filters", _flag),
}
"""Of each option: the field, and what reads its text (given the option's name for errors)."""
NAMES = ("url", "namespace", "subscribe", *_READERS)
