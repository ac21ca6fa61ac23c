"""What a worker process has leased, and what of it it runs, where its supervisor reads it.

A process that is killed says nothing any more, and the server knows its leases but not which of
them it was running. So each process notes that in memory that it shares with its supervisor
(docs/decisions/0102). On the way of a message this costs the store of a number, and 20 bytes a
message where a batch is leased.

Of each consumer there is a region: how many messages run at once, how many bytes of each half are
written, and for each slot the position of the first message that it runs (0 for none) and how many.
Two halves follow, written in turn, with a line for each batch that was leased: the position of its
first message, what spells the keys of its place, lease numbers and ids. Positions count a
consumer's messages from 1, in the order in which they are leased and begun.
"""

import mmap
import os
import struct
import tempfile
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import suppress
from functools import lru_cache
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

from rqretry.core.receipt import Receipt
from rqretry.protocol.keys import GroupKeys, group_keys, partition_keys
from rqretry.worker.leases import Delivery

HALF = 1 << 17
"""Holds the longest line: a full batch of the longest ids."""
_NUMBER = 8
_HEAD = struct.Struct("=3Q")


class HeldMessage(NamedTuple):
    """A message that a process had leased."""

    keys: GroupKeys
    receipt: Receipt


class Held(NamedTuple):
    """What a process had at its end.

    Attributes:
        busy: Whether any handler had begun and not ended.
        running: What these handlers ran, as far as it is known.
        others: What it leased lately besides; most of that was settled.
    """

    busy: bool
    running: list[HeldMessage]
    others: list[HeldMessage]


class LeaseJournal:
    """The shared memory of one process; made by its supervisor, and picklable for its start."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = shared_file() if fd is None else fd

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (DupFd(self._fd),)

    def region(self, concurrency: int) -> "Region":
        """Where one consumer of this process notes what it has."""
        begin = os.fstat(self._fd).st_size
        size = _region_size(concurrency)
        os.ftruncate(self._fd, begin + size)
        return Region(mmap.mmap(self._fd, size, offset=begin), concurrency)

    def read(self) -> Held:
        """What the process had; after its end."""
        running: list[HeldMessage] = []
        others: list[HeldMessage] = []
        at, end, busy = 0, os.fstat(self._fd).st_size, False
        while at + _HEAD.size <= end:
            concurrency, *_ = _HEAD.unpack(os.pread(self._fd, _HEAD.size, at))
            size = _region_size(concurrency)
            data = os.pread(self._fd, size, at)
            slots = _slots(data, concurrency)
            busy = busy or bool(slots)
            for position, message in _messages(data, concurrency):
                runs = any(first <= position < last for first, last in slots)
                (running if runs else others).append(message)
            at += size
        return Held(busy, running, others)

    def close(self) -> None:
        """Forget it; the supervisor's side."""
        os.close(self._fd)


class Region:
    """What one consumer has."""

    def __init__(self, memory: mmap.mmap, concurrency: int) -> None:
        numbers = memoryview(memory)[: _halves_at(concurrency)].cast("Q")
        numbers[0] = concurrency
        self._memory = memory
        self._written = numbers[1:3]
        self.firsts: MutableSequence[int] = numbers[3 : 3 + concurrency]  # type: ignore[assignment]
        self.counts: MutableSequence[int] = numbers[3 + concurrency :]  # type: ignore[assignment]
        for slot in range(concurrency):
            self.counts[slot] = 1
        self._halves_at = _halves_at(concurrency)
        self._half = 0

    def leased(self, first: int, deliveries: Sequence[Delivery]) -> None:
        """A batch of one place was leased; `first` is the position of its first message."""
        numbers = {delivery.lease_no for delivery in deliveries}
        alike = str(numbers.pop()) if len(numbers) == 1 else ""
        leases = alike or " ".join([str(delivery.lease_no) for delivery in deliveries])
        ids = " ".join([delivery.id for delivery in deliveries])
        line = f"{first}\t{_named(deliveries[0].place.keys)}\t{leases}\t{ids}\n".encode()
        if self._written[self._half] + len(line) > HALF:
            self._half = 1 - self._half
            self._written[self._half] = 0
        written = self._written[self._half]
        begin = self._halves_at + self._half * HALF + written
        self._memory[begin : begin + len(line)] = line
        self._written[self._half] = written + len(line)


@lru_cache(maxsize=4096)
def _named(keys: GroupKeys) -> str:
    """A place, for a line."""
    of = keys.partition
    place = (of.namespace, of.topic, of.partition, keys.group, keys.level_count, keys.source)
    return "\t".join(map(str, place))


def _messages(data: bytes, concurrency: int) -> Iterator[tuple[int, HeldMessage]]:
    """Each message that a region names, with its position."""
    _, *written = _HEAD.unpack_from(data)
    for half, length in enumerate(written):
        begin = _halves_at(concurrency) + half * HALF
        for line in data[begin : begin + length].decode().splitlines():
            first, namespace, topic, partition, group, levels, source, leases, ids = line.split(
                "\t"
            )
            keys = partition_keys(namespace, topic, int(partition))
            keys_of_group = group_keys(keys, group, int(levels), source)
            numbers, each = leases.split(" "), ids.split(" ")
            if len(numbers) == 1:
                numbers *= len(each)
            for position, (id_, number) in enumerate(zip(each, numbers, strict=True), int(first)):
                yield position, HeldMessage(keys_of_group, Receipt(id_, int(number)))


def _slots(data: bytes, concurrency: int) -> list[tuple[int, int]]:
    """The positions that slots run, each from a first one up to before a last one."""
    numbers = struct.unpack_from(f"={2 * concurrency}Q", data, _HEAD.size)
    pairs = zip(numbers[:concurrency], numbers[concurrency:], strict=True)
    return [(first, first + count) for first, count in pairs if first]


def _halves_at(concurrency: int) -> int:
    return _HEAD.size + 2 * concurrency * _NUMBER


def _region_size(concurrency: int) -> int:
    page = mmap.ALLOCATIONGRANULARITY
    return -(-(_halves_at(concurrency) + 2 * HALF) // page) * page


def shared_file() -> int:
    """A file without a name for two processes, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return os.memfd_create("rqretry")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _attached(duplicate: Any) -> LeaseJournal:
    return LeaseJournal(duplicate.detach())
