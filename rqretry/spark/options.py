"""The options of the data source, read and checked on the driver before anything runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.limits import check_group, check_topic, read_whole
from rqretry.core.settings import Settings
from rqretry.spark.position import EARLIEST, LATEST, Wanted, read_offsets

HISTORY, DEAD_LETTERS, MESSAGES = "history", "dead_letters", "messages"
KINDS = (HISTORY, DEAD_LETTERS, MESSAGES)
ALL_TOPICS = "*"
# Spark hands these to every source or sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
_BOOLEANS = {"true": True, "false": False}
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
    max_per_trigger: int | None = None
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
        """The topics to read; None for all of the namespace."""
        if self.topic == ALL_TOPICS:
            return None
        return tuple(check_topic(name.strip()) for name in self.topic.split(","))

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
    _check_names(given)
    lowered = {name.lower(): value for name, value in given.items()}
    texts = {name: lowered[name.lower()] for name in NAMES if name.lower() in lowered}
    if texts.get("kind", HISTORY) not in KINDS:
        refuse("option kind", texts["kind"], f"must be one of {', '.join(KINDS)}")
    if not texts.get("topic"):
        raise InvalidArgument(
            'option topic is missing: name a topic, several as "a,b", or "*" for all to read'
        )
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
    if options.starting == LATEST:
        raise InvalidArgument('option startingOffsets "latest" would read nothing in a batch')
    if options.ending == EARLIEST:
        raise InvalidArgument('option endingOffsets "earliest" would read nothing')
    return options


def check_stream(options: Options) -> Options:
    """Options that a streaming read does not have."""
    if options.kind != HISTORY:
        raise InvalidArgument(
            f"kind {show(options.kind)} cannot be read as a stream: only the history is a log;"
            " read it as a batch"
        )
    if options.ending is not None:
        raise InvalidArgument("option endingOffsets is for batch reads: remove it")
    return options


def _check_names(given: Iterable[str]) -> None:
    known = {name.lower(): name for name in NAMES}
    for name in given:
        if name.lower() not in known and name.lower() not in _SPARKS_OWN:
            near = get_close_matches(name.lower(), known, 1)
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
    if text.lower() not in _BOOLEANS:
        refuse(name, text, "must be true or false")
    return _BOOLEANS[text.lower()]


_READERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "topic": ("topic", _text),
    "kind": ("kind", _text),
    "group": ("group", _group),
    "startingOffsets": ("starting", read_offsets),
    "endingOffsets": ("ending", read_offsets),
    "maxOffsetsPerTrigger": ("max_per_trigger", _count),
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
NAMES = ("url", "namespace", *_READERS)
