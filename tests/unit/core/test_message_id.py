"""Message ids: sortable, unique, and telling when they were made."""

import pickle

import pytest

from rqretry.core.message_id import (
    LENGTH,
    MessageId,
    born_ms,
    make_id,
    make_ids,
    make_producer,
    pack_ids,
    partition_of,
    spell_ids,
)

NOW_MS = 1_790_000_000_123


def test_an_id_reports_when_it_was_made() -> None:
    (made,) = make_ids(1, NOW_MS)

    assert len(made) == LENGTH
    assert born_ms(made) == NOW_MS


def test_ids_sort_by_the_time_they_were_made() -> None:
    times = [0x1FF_FFFF + step * 977 for step in range(500)]
    made = [make_ids(1, ms)[0] for ms in times]

    assert sorted(made) == made
    assert [born_ms(id_) for id_ in made] == times


def test_many_ids_of_one_millisecond_differ_and_keep_to_the_alphabet() -> None:
    made = make_ids(10_000, NOW_MS)

    assert len(set(made)) == 10_000
    assert {character for id_ in made for character in id_} <= set(
        "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
    )


def test_without_a_known_server_time_this_machine_s_has_to_do() -> None:
    (made,) = make_ids(1, 0)

    assert (born_ms(made) or 0) > 1_600_000_000_000


def test_an_id_made_alone_is_the_one_that_would_be_made_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(20):
        noise = bytes((seed * 37 + place * 91) % 256 for place in range(9))
        monkeypatch.setattr("os.urandom", lambda size, noise=noise: noise[:size])
        assert [make_id(NOW_MS)] == make_ids(1, NOW_MS)
    assert (born_ms(make_id(0)) or 0) > 1_600_000_000_000


def test_packed_ids_take_twelve_bytes_and_are_spelled_as_they_were() -> None:
    made = make_ids(500, NOW_MS)

    packed = pack_ids(made)

    assert len(packed) == 12 * len(made)
    assert spell_ids(packed).decode().split(" ") == made


@pytest.mark.parametrize("other", ["order-1", "x" * 15 + ".", "x" * 15 + "é"])
def test_ids_of_another_shape_are_not_packed(other: str) -> None:
    assert pack_ids([*make_ids(3, NOW_MS), other]) == b""


def test_no_ids_are_no_ids() -> None:
    assert make_ids(0, NOW_MS) == []


@pytest.mark.parametrize("other", ["", "order-1", "x" * 15, "x" * 17, "0123456789abcde.", "a:" * 8])
def test_an_id_of_another_shape_does_not_report_its_time(other: str) -> None:
    assert born_ms(other) is None


@pytest.mark.parametrize("partitions", [1, 2, 4, 1024])
def test_a_partition_is_chosen_by_the_id_alone_and_evenly(partitions: int) -> None:
    ids = [f"order-{number}" for number in range(4096)]
    places = [partition_of(id_, partitions) for id_ in ids]

    assert places == [partition_of(id_, partitions) for id_ in ids]
    assert set(places) <= set(range(partitions))
    if partitions <= 4:
        assert all(places.count(n) > 0.8 * len(ids) / partitions for n in range(partitions))


def test_the_partition_of_an_id_never_changes_between_releases() -> None:
    assert [partition_of(id_, 8) for id_ in ("a", "order-1", "P6xbdhyhAqAyQMuL")] == [3, 7, 7]


def test_a_message_id_is_text_with_what_publishing_found_out() -> None:
    plain, duplicate = MessageId("x"), MessageId("x", duplicate=True, durability="disk")

    assert plain == duplicate == "x"
    assert (plain.duplicate, plain.durability) == (False, "memory")
    assert (duplicate.duplicate, duplicate.durability) == (True, "disk")


def test_a_message_id_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(MessageId("x", duplicate=True)))

    assert (copy, copy.duplicate, copy.durability) == ("x", True, "memory")


def test_producers_have_names_of_their_own() -> None:
    assert len({make_producer() for _ in range(1000)}) == 1000
