"""Choosing dead letters by a condition of Spark SQL, with a preview of what was chosen."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
from pyspark.sql import DataFrame, SparkSession

from rqretry.admin.dead_letter_filter import DeadLetterFilter, Matchable
from rqretry.core.errors import InvalidArgument, show
from rqretry.spark.error_messages import gist, plain_on_driver
from rqretry.spark.options import ALL_TOPICS, DEAD_LETTERS, given_options

_LOGGED = 300
_SHOWN = 200
_COLUMNS = (
    "topic",
    "partition",
    "id",
    "unix_millis(dead_since) AS dead_since_ms",
    "cause",
    "deliveries",
    "error_type",
    f"left(error_message, {_SHOWN}) AS error_message",
    "fingerprint",
    f"left(body, {_SHOWN}) AS body",
)
_CHOSEN = "SELECT topic, partition, id, dead_since_ms FROM {chosen} ORDER BY dead_since_ms, id"
_KINDS = """
SELECT topic, cause, error_type, fingerprint, count(*) AS count, min(dead_since_ms) AS first_ms,
       max(dead_since_ms) AS last_ms, min(error_message) AS example
FROM {chosen} GROUP BY topic, cause, error_type, fingerprint
ORDER BY count DESC, topic, fingerprint, cause, error_type LIMIT 20
"""
_SAMPLES = """
SELECT topic, id, deliveries, cause, error_type, error_message, fingerprint, dead_since_ms, body
FROM (SELECT *, row_number() OVER
                (PARTITION BY topic, fingerprint ORDER BY dead_since_ms, id) AS rank
      FROM {chosen})
ORDER BY rank, dead_since_ms, id LIMIT 5
"""
# What a condition may run into in some row: a number that is none, a division by zero.
_FAILED_ON_A_ROW = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)


class ChosenDeadLetter(NamedTuple):
    """One death of one message: once it was sent back it is no longer this dead letter."""

    topic: str
    partition: int
    id: str
    dead_since_ms: int


@dataclass(slots=True)
class Choice:
    """A selection of dead letters, with a preview.

    Attributes:
        group: Their group.
        where: The condition.
        dead_letters: Which they are, the oldest death first.
        kinds: How many there are of each topic, cause and error; the 20 most frequent.
        samples: Five of them, one of each kind first; texts are cut.
        resumed: An earlier run made the choice and did not finish it.
    """

    group: str
    where: str
    dead_letters: list[ChosenDeadLetter]
    kinds: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Deaths(DeadLetterFilter):
    """The filter that takes exactly these deaths, and not what died again since.

    Attributes:
        when: When each message died, by topic and id.
        where: The condition that chose them, for the audit record.
        sent_before: How many of them earlier runs had sent, for the audit record too: a run that
            was killed has not written there what it sent.
    """

    when: Mapping[tuple[str, str], frozenset[int]]
    where: str
    sent_before: int = 0

    @classmethod
    def of(cls, choice: Choice, sent_before: int = 0) -> "Deaths":
        """The deaths of a choice."""
        found: dict[tuple[str, str], frozenset[int]] = {}
        for dead_letter in choice.dead_letters:
            key = dead_letter.topic, dead_letter.id
            found[key] = found.get(key, frozenset()) | {dead_letter.dead_since_ms}
        return cls(when=found, where=choice.where, sent_before=sent_before)

    @property
    def narrows(self) -> bool:
        """It always chooses in particular, also where that is nothing."""
        return True

    def given(self) -> dict[str, Any]:
        """For the audit record."""
        fields = {"where": self.where[:_LOGGED], "chosen": sum(map(len, self.when.values()))}
        return fields | ({"sent_before": self.sent_before} if self.sent_before else {})

    def matches(self, dead_letter: Matchable) -> bool:
        """Whether this is one of the deaths."""
        return dead_letter.dead_since_ms in self.when.get((dead_letter.topic, dead_letter.id), ())


def choose(
    spark: SparkSession, group: str, where: str, *, namespace: str, url: str | None = None
) -> Choice:
    """The dead letters of a group for which a condition holds; nothing is changed.

    Args:
        spark: The session to run on.
        group: The group's name.
        where: A condition of Spark SQL over the columns of dead letters.
        namespace: The namespace.
        url: The server, as everywhere.

    Raises:
        InvalidArgument: The condition is not valid, or fails on a dead letter.
        GroupNotFound, StoreUnavailable: There is nothing to read from.
    """
    options = given_options(
        url=url, namespace=namespace, topic=ALL_TOPICS, kind=DEAD_LETTERS, group=group
    )
    with plain_on_driver(), _plain_condition(where):
        rows = spark.read.format("rqretry").options(includeHeaders=True, **options).load()
        # Three queries over one reading, so that they are about the same dead letters.
        chosen = rows.where(where).selectExpr(*_COLUMNS).persist()
        try:
            dead_letters = _answer(spark, _CHOSEN, chosen)
            kinds, samples = _answer(spark, _KINDS, chosen), _answer(spark, _SAMPLES, chosen)
        finally:
            chosen.unpersist()
    return Choice(group, where, [ChosenDeadLetter(**row) for row in dead_letters], kinds, samples)


def _answer(spark: SparkSession, query: str, chosen: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = spark.sql(query, chosen=chosen).toArrow().to_pylist()
    return rows


@contextmanager
def _plain_condition(where: str) -> Iterator[None]:
    try:
        yield
    except AnalysisException as error:
        raise InvalidArgument(
            f"where {show(where)} is not a condition over dead letters: {gist(error)}"
        ) from None
    except _FAILED_ON_A_ROW as error:
        raise InvalidArgument(
            f"where {show(where)} fails on a dead letter: {gist(error)}"
        ) from None
