"""The operator's verbs about dead letters: list, export, redrive (with a rate and canaries)."""

from collections.abc import Mapping, Sequence
from typing import Any

from rqretry.admin.base import AdminBase, Place
from rqretry.admin.dead_letter_export import as_json
from rqretry.admin.dead_letter_filter import DeadLetterFilter, chosen
from rqretry.admin.interruptions import explained
from rqretry.admin.results import RedriveReport
from rqretry.core.dead_letter import DeadLetterRecord, read_dead_letter
from rqretry.core.durations import Duration, milliseconds, seconds
from rqretry.core.failure_record import describe_redrive, read_record
from rqretry.core.limits import MAX_DELAY_S, check_count, check_group
from rqretry.core.rates import Rate, per_second
from rqretry.observability import observer
from rqretry.protocol import inspect as reading
from rqretry.protocol.command import MAX_BATCH, Command, Operation, Pause, batches
from rqretry.protocol.keys import GroupKeys
from rqretry.protocol.operate import redrive

SHORTEST_PATIENCE_S = 0.2
"""How often canaries are looked at."""
_EXPLAINED = 20
"""Dead letters chosen by id whose histories are read."""

Found = list[tuple[DeadLetterRecord, GroupKeys]]


class LetterVerbs(AdminBase):
    """Dead letters."""

    def dead_letters(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        *,
        bodies: bool = True,
        **fields: Any,
    ) -> Operation[list[DeadLetterRecord]]:
        """The dead letters of a group, oldest first, over all its topics.

        Chosen by their ids, they also say of interrupted attempts who held the lease and how that
        worker's process ended, as far as the history is kept; of more than 20, the first ones do.

        Args:
            group: The group's name.
            filter: Which ones; default all. Its fields can be given as keywords instead.
            bodies: Fetch and decode the bodies too.
            fields: The filter's fields, where no filter is given.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: The filter is not one.
        """
        wanted = chosen(filter, fields, default_all=True)
        found = yield from self._find(group, wanted, with_bodies=bodies)
        if not wanted.ids:
            return [letter for letter, _ in found]
        letters = []
        for letter, keys in found[:_EXPLAINED]:
            partition = keys.partition.partition
            letters.append((yield from explained(self.catalog, letter, letter.topic, partition)))
        return letters + [letter for letter, _ in found[_EXPLAINED:]]

    def export(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        **fields: Any,
    ) -> Operation[list[dict[str, Any]]]:
        """The dead letters as JSON-compatible dicts, one a line of a file; arguments as above.

        A body that JSON cannot hold is under `body_base64` instead of `body`: raw bytes, or the
        stored bytes of one that cannot be decoded.
        """
        letters = yield from self.dead_letters(group, filter, **fields)
        return [as_json(letter) for letter in letters]

    def redrive(
        self,
        /,
        group: str,
        filter: DeadLetterFilter | None = None,  # noqa: A002 - the name of the contract
        *,
        rate: Rate | None = None,
        canary: int | None = None,
        canary_timeout: Duration = 60,
        delay: Duration = 0,
        dry_run: bool = False,
        **fields: Any,
    ) -> Operation[RedriveReport]:
        """Send dead letters back to the group, the oldest first: attempt 1 again, same id and body.

        Args:
            group: The group's name.
            filter: Which ones (or as keywords): ids=, topic=, fingerprint=, error=, since=,
                before=, or all=True.
            rate: At most so many, such as "20/s" or "100/m": all are sent back now, each with a due
                time of its own, so the pace holds whatever becomes of this process. Default: all
                at once.
            canary: Send so many first, and the rest when each of them was committed or has failed
                with another error. One that fails with its old error again stops the redrive.
            canary_timeout: How long to wait for them; past it the redrive stops too.
            delay: How long from now the first of them is due; canaries do not wait.
            dry_run: Only count them.
            fields: The filter's fields, where no filter is given.

        Returns:
            How many were sent back (or would be): an int that also says what the canaries did.

        Raises:
            GroupNotFound: There is no such group.
            InvalidArgument: The filter chooses nothing in particular (say all=True), or a value is
                outside its limits.
        """
        wanted = chosen(filter, fields, default_all=False)
        pace = None if rate is None else per_second(rate)
        first = 0 if canary is None else check_count(canary, name="canary")
        patience = seconds(canary_timeout, name="canary_timeout", minimum=SHORTEST_PATIENCE_S)
        wait_ms = milliseconds(delay, name="delay", maximum=MAX_DELAY_S)
        found = yield from self._find(group, wanted, with_bodies=False)
        if dry_run:
            return RedriveReport(len(found), matched=len(found))
        said = {"group": group, "rate": rate} | wanted.given()
        sent = failed = 0
        if first:
            tried = yield from self._send_canaries(found, first, patience, said)
            if tried.reason:
                return tried
            sent, failed = int(tried), tried.failed
        rest = found[first:]
        done = yield from self._send_back(rest, pace, wait_ms)
        yield from self._note("redrive", said, {"sent": done})
        canaries = min(first, len(found))
        return RedriveReport(sent + done, matched=len(found), canaries=canaries, failed=failed)

    def _send_canaries(
        self,
        found: Found,
        first: int,
        patience: float,
        said: Mapping[str, Any],
    ) -> Operation[RedriveReport]:
        """Send the first ones and wait for them; a reason in the answer stops the redrive."""
        canaries = found[:first]
        sent = yield from self._send_back(canaries, None)
        yield from self._note("redrive", {**said, "step": "canary"}, {"sent": sent})
        failed, reason = yield from self._watch(canaries, patience)
        if reason:
            counts = {"failed": failed, "left": len(found) - sent}
            yield from self._note("redrive", {**said, "step": "stopped: " + reason}, counts)
        return RedriveReport(sent, matched=len(found), canaries=sent, failed=failed, reason=reason)

    def letter_places(self, group: str, wanted: DeadLetterFilter) -> Operation[list[Place]]:
        """Where the chosen dead letters are, for those who read them with `read_page`."""
        record = yield from self.catalog.groups.get(check_group(group))
        if record.source:  # there is no dead-letter queue of a dead-letter queue
            return []
        return (yield from self._places(record, wanted.topic))

    def _find(self, group: str, wanted: DeadLetterFilter, *, with_bodies: bool) -> Operation[Found]:
        """The chosen dead letters of all places, the oldest first."""
        found: Found = []
        for place in (yield from self.letter_places(group, wanted)):
            letters = yield from read_dead(place, wanted, with_bodies=with_bodies)
            found += [(letter, place.keys) for letter in letters]
        return sorted(found, key=lambda pair: (pair[0].dead_since_ms, pair[0].id))

    def _send_back(self, found: Found, pace: float | None, wait_ms: int = 0) -> Operation[int]:
        """Dead to ready; after a wait, and with a pace the k-th one k / pace seconds after it.

        What is due first is sent first, over all places, so that a call that is cut off has sent
        the beginning.
        """
        rows = list(enumerate(found))
        size = MAX_BATCH * len({keys for _, keys in found})
        sent = 0
        for at in range(0, len(rows), size or 1):
            by_place: dict[GroupKeys, list[tuple[DeadLetterRecord, int | str]]] = {}
            for place, (letter, keys) in rows[at : at + size]:
                delay_ms = wait_ms + (round(place * 1000 / pace) if pace else 0)
                by_place.setdefault(keys, []).append((letter, delay_ms or ""))
            for keys, part in by_place.items():
                for batch in batches(part):
                    sent += yield from self._send_batch(keys, batch)
        return sent

    def _send_batch(
        self, keys: GroupKeys, batch: Sequence[tuple[DeadLetterRecord, int | str]]
    ) -> Operation[int]:
        letters, delays = [letter for letter, _ in batch], [delay for _, delay in batch]
        ids = [letter.id for letter in letters]
        seen = observer.installed
        watch = seen and seen.redriving(keys.partition.namespace, keys.group, letters, self.actor)
        traces = watch.traces if watch else [""] * len(ids)
        records = [describe_redrive(self.actor, trace) for trace in traces]
        verdicts: list[bytes] = yield redrive(
            keys, ids, actor=self.actor, delays_ms=delays, records=records
        )
        if watch:
            watch.done([verdict == b"OK" for verdict in verdicts])
        return verdicts.count(b"OK")

    def _watch(self, canaries: Found, patience: float) -> Operation[tuple[int, str]]:
        """Until each canary was committed or failed; how many failed, and why to stop or ""."""
        failed = 0
        waiting = list(canaries)
        for _ in range(max(1, round(patience / SHORTEST_PATIENCE_S))):
            peeked = yield [reading.peek(keys, letter.id) for letter, keys in waiting]
            still: Found = []
            for (letter, keys), seen in zip(waiting, peeked, strict=True):
                again = _failed_again(seen)
                if again is not None:
                    failed += 1
                    if again == letter.fingerprint:
                        return failed, f"canary {letter.id} failed again: {letter.error}"
                elif not _committed(seen):
                    still.append((letter, keys))
            if not still:
                return failed, ""
            waiting = still
            yield Pause(SHORTEST_PATIENCE_S)
        reason = f"{len(waiting)} of {len(canaries)} canaries were not done in time"
        return failed, reason


def read_dead(
    place: Place, wanted: DeadLetterFilter, *, with_bodies: bool
) -> Operation[list[DeadLetterRecord]]:
    """The chosen dead letters of one place, page by page."""
    found: list[DeadLetterRecord] = []
    offset = 0
    while letters := (yield from read_page(place, offset, with_bodies=with_bodies)):
        offset += len(letters)
        found += [letter for letter in letters if wanted.matches(letter)]
    return found


def read_page(place: Place, offset: int, *, with_bodies: bool) -> Operation[list[DeadLetterRecord]]:
    """One page of the dead letters of one place, oldest first; none at the end."""
    look: Command[reading.DeadPage] = reading.dead_letters(
        place.keys, offset=offset, with_bodies=with_bodies
    )
    return list(_letters(place.topic, place.keys.group, (yield look)))


def _failed_again(seen: reading.Peeked) -> str | None:
    """The fingerprint of what failed since the message was sent back; None: nothing has."""
    errors = read_record(seen.failures)
    if not seen.stored or not errors or errors[-1].cause == "redriven":
        return None
    return errors[-1].fingerprint


def _committed(seen: reading.Peeked) -> bool:
    return not seen.stored or bool(seen.owed and seen.byte not in seen.owed)


def _letters(topic: str, group: str, page: reading.DeadPage) -> Sequence[DeadLetterRecord]:
    bodies = page.data or [b""] * len(page.ids)
    rows = zip(page.ids, page.since_ms, page.deaths, page.failures, bodies, strict=True)
    return [read_dead_letter(topic, group, *row) for row in rows]
