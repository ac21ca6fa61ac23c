"""How a worker process ended that nobody asked to stop, as the supervisor records it.

A message that crashes its process leaves no error, only a lease that expires. How that process
ended, and what it was running then, is known to its parent alone, which records it. What the
process had leased besides is given back, uncounted (docs/decisions/0102).
"""

import logging
import threading
from collections import defaultdict
from collections.abc import Sequence

from rqretry.core.errors import RqretryError
from rqretry.core.receipt import Receipt
from rqretry.core.settings import Settings
from rqretry.core.worker_name import process_name
from rqretry.protocol.audit_log import exit_record
from rqretry.protocol.command import Command, Each, Operation, batches, number, query, texts
from rqretry.protocol.inspect import recent_history
from rqretry.protocol.keys import GroupKeys, NamespaceKeys
from rqretry.protocol.lease import OK, release
from rqretry.transport.store_sync import SyncStore
from rqretry.worker.lease_journal import Held, HeldMessage

log = logging.getLogger("rqretry")

PATIENCE_S = 5.0
_AT_ONCE = 4
_NAMED = 3
_RECORDED = 100
_LOOK_BACK = 500
"""Entries of a partition's history."""


class ExitRecords:
    """Writes exit records in threads, so that an unreachable server holds up no restart."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    def write(self, pid: int, ending: str, held: Held) -> None:
        """Record how a process ended, if the server can be reached; returns at once.

        Args:
            pid: The process.
            ending: How it ended, such as "ended with SIGKILL".
            held: What it had then.
        """
        if self._slots.acquire(blocking=False):
            threading.Thread(
                target=self._write,
                args=(pid, ending, held),
                name="rqretry-exit-record",
                daemon=True,
            ).start()

    def _write(self, pid: int, ending: str, held: Held) -> None:
        keys, process = NamespaceKeys(self._settings.namespace), process_name(pid)
        ran = [
            (each.keys.partition.topic, each.keys.group, each.receipt.id)
            for each in held.running[:_RECORDED]
        ]
        try:
            with SyncStore(self._settings.url, repeat_seconds=PATIENCE_S) as store:
                store.run(exit_record(keys, process=process, ending=ending, ran=ran))
                given_back = store.perform(_give_back(held, process))
        except RqretryError as error:
            log.warning("how worker process %d ended was not recorded: %s", pid, error)
        else:
            if given_back:
                log.info("%d messages that worker process %d was not running are given back,"
                         " uncounted", given_back, pid)  # fmt: skip
        finally:
            self._slots.release()


def running_in(running: Sequence[HeldMessage]) -> str:
    """What a process was running, for a line of the log."""
    if not running:
        return ""
    named = [f"message {each.receipt.id} of {each.keys}" for each in running[:_NAMED]]
    more = [f"{len(running) - _NAMED} more"] if len(running) > _NAMED else []
    return f" while it ran {'; '.join(named + more)}"


def _give_back(held: Held, process: str) -> Operation[int]:
    """Give back what was not running: how many messages that were.

    Only where something was, which counts: else nobody's attempts would end what goes on for ever.
    """
    if not held.busy:
        return 0
    by_place: dict[GroupKeys, set[Receipt]] = defaultdict(set)
    known = {(message.keys, message.receipt.id) for message in (*held.running, *held.others)}
    for keys, receipt in held.others:
        by_place[keys].add(receipt)
    for keys in {keys for keys, _ in known}:
        last = yield from _last_lease(keys, process)
        by_place[keys] |= {receipt for receipt in last if (keys, receipt.id) not in known}
    calls: list[Command[list[bytes]]] = [
        release(keys, batch, worker=process)
        for keys, receipts in by_place.items()
        for batch in batches(sorted(receipts))
    ]
    answers = yield Each(calls)
    return sum(answer.count(OK) for answer in answers if isinstance(answer, list))


def _last_lease(keys: GroupKeys, process: str) -> Operation[list[Receipt]]:
    """What a process leased last, of which it may not have heard."""
    floor: int | None = yield query(number, "HGET", keys.config, "floor")
    page: list[tuple[str, dict[str, bytes]]]
    page = yield recent_history(keys.partition, end="+", count=_LOOK_BACK)
    for _, fields in page:
        if fields["e"] == b"lease" and fields["g"] == keys.group.encode():
            if not fields["w"].startswith(f"{process}:".encode()):
                continue
            ids, states = texts(fields["i"].split(b" ")), fields["d"].split(b" ")
            states = states if len(states) == len(ids) else [b""] * len(ids)
            numbers = [number(state.partition(b":")[0].strip(b"-")) for state in states]
            leases = [lease_no or floor or 1 for lease_no in numbers]
            return [Receipt(*pair) for pair in zip(ids, leases, strict=True)]
    return []
