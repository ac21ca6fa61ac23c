"""The options of the data source, read and checked on the driver before anything runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from rqretry.core.errors import InvalidArgument, refuse, show
from rqretry.core.limits import check_group, check_topic
from rqretry.core.settings import Settings
from rqretry.spark.position import EARLIEST, LATEST, Wanted, read_offsets

HISTORY, DEAD_LETTERS, MESSAGES = "history", "dead_letters", "messages"
KINDS = (HISTORY, DEAD_LETTERS, MESSAGES)
ALL_TOPICS = "*"
NAMES = (
    "url",
    "namespace",
    "topic",
    "kind",
    "group",
    "startingOffsets",
    "endingOffsets",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "fetchSize",
    "batchSize",
    "idColumn",
    "jobId",
    "pushFilters",
)
# Spark hands these to every source or sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
_BOOLEANS = {"true": True, "false": False}
MAX_BATCH_SIZE = 500
FETCH_SIZE = 20_000
MAX_FETCH_SIZE = 100_000
_MOST = 10**9


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
    kind = texts.get("kind", HISTORY)
    if kind not in KINDS:
        refuse("option kind", kind, f"must be one of {', '.join(KINDS)}")
    if not texts.get("topic"):
        raise InvalidArgument(
            'option topic is missing: name a topic, several as "a,b", or "*" for all to read'
        )
    options = Options(
        settings=Settings.read(texts.get("url"), texts.get("namespace")),
        topic=texts["topic"],
        kind=kind,
        group=check_group(texts["group"]) if "group" in texts else None,
        starting=_offsets(texts, "startingOffsets"),
        ending=_offsets(texts, "endingOffsets"),
        max_per_trigger=_count(texts, "maxOffsetsPerTrigger", None, _MOST),
        min_partitions=_count(texts, "minPartitions", None, _MOST),
        fail_on_data_loss=_flag(texts, "failOnDataLoss", default=True),
        include_headers=_flag(texts, "includeHeaders", default=False),
        fetch_size=_count(texts, "fetchSize", FETCH_SIZE, MAX_FETCH_SIZE) or FETCH_SIZE,
        batch_size=_count(texts, "batchSize", MAX_BATCH_SIZE, MAX_BATCH_SIZE) or MAX_BATCH_SIZE,
        id_column=texts.get("idColumn"),
        job_id=texts.get("jobId"),
        push_filters=_flag(texts, "pushFilters", default=False),
    )
    assert options.topics != ()
    return options


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


def _offsets(texts: Mapping[str, str], name: str) -> Wanted | None:
    return read_offsets(f"option {name}", texts[name]) if name in texts else None


def _count(texts: Mapping[str, str], name: str, default: int | None, most: int) -> int | None:
    text = texts.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 1 <= int(text) <= most:
        refuse(f"option {name}", text, f"must be a whole number from 1 to {most}")
    return int(text)


def _flag(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = texts.get(name)
    if text is None:
        return default
    if text.lower() not in _BOOLEANS:
        refuse(f"option {name}", text, "must be true or false")
    return _BOOLEANS[text.lower()]
