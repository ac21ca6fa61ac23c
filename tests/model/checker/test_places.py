"""Every key that keys.py spells is read back as what it is."""

from dataclasses import fields

from rqretry.protocol.keys import GroupKeys, PartitionKeys, partition_keys
from tests.model.checker.invariants import _is_known
from tests.model.checker.places import DELAY, Place, place_of

PARTITION = partition_keys("n-s", "to_pic", 12)
GROUP = PARTITION.group("gr-oup", 18)


def test_the_keys_of_a_partition_are_read_back() -> None:
    for field in fields(PartitionKeys):
        key = getattr(PARTITION, field.name)
        if isinstance(key, str) and key.startswith(PARTITION.base) and key != PARTITION.base:
            assert place_of(key, "n-s") == Place("to_pic", 12, "", field.name)
    assert place_of(PARTITION.lane("host:1:2"), "n-s") == Place("to_pic", 12, "", "lane")


def test_the_keys_of_a_group_are_read_back() -> None:
    for field in fields(GroupKeys):
        key = getattr(GROUP, field.name)
        if isinstance(key, str) and key.startswith(PARTITION.base):
            assert place_of(key, "n-s") == Place("to_pic", 12, "gr-oup", field.name)
    assert place_of(GROUP.levels[16], "n-s") == Place("to_pic", 12, "gr-oup", DELAY, 17)


def test_other_keys_have_no_place() -> None:
    assert place_of(PARTITION.bodies, "other") is None
    assert place_of("rqretry:n-s:{n-s}:topics", "n-s") is None
    assert _is_known("rqretry:n-s:{n-s}:topics", "n-s")
    assert _is_known("rqretry:n-s:{n-s}:checks:producers", "n-s")
    assert _is_known("rqretry:n-s:{n-s/gr-oup}:bucket", "n-s")
    assert not _is_known("rqretry:n-s:{n-s}:namespace", "n-s")
    assert not _is_known(PARTITION.base + "group:g:nothing", "n-s")
