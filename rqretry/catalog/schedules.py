"""The records of schedules, in the namespace's slot; every change is read, decide, swap."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from rqretry.catalog.store import CatalogStore, compare_and_set, meant
from rqretry.core.catalog_records import with_unknown
from rqretry.core.errors import CodecError, ScheduleNotFound, show
from rqretry.core.schedule import ScheduleRecord, check_schedule
from rqretry.protocol import audit_log, inspect
from rqretry.protocol.command import Operation

Decide = Callable[[ScheduleRecord | None], ScheduleRecord | None]


class Schedules:
    """The schedules of a namespace."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._stored_in = store.keys.schedules

    def all(self) -> Operation[tuple[list[ScheduleRecord], dict[str, str]]]:
        """All that can be read, by name; and those that cannot, each with what is wrong."""
        stored: dict[str, str] = yield inspect.read_records(self._stored_in)
        found, damaged = [], {}
        for name in sorted(stored):
            try:
                found.append(ScheduleRecord.decode(name, stored[name]))
            except CodecError as error:
                damaged[name] = str(error)
        return found, damaged

    def find(self, name: str) -> Operation[ScheduleRecord]:
        """One of them. Raises ScheduleNotFound."""
        stored: str = yield inspect.read_record(self._stored_in, check_schedule(name))
        if not stored:
            raise (yield from self._missing(name))
        return ScheduleRecord.decode(name, stored)

    def now_and(self, names: Sequence[str]) -> Operation[tuple[int, list[str]]]:
        """The server's time, and these schedules as they are stored; "" for one that is not."""
        now_ms, stored = yield [
            audit_log.now(self._store.keys),
            inspect.read_these(self._stored_in, names),
        ]
        return now_ms, stored

    def define(self, definition: ScheduleRecord) -> Operation[ScheduleRecord]:
        """Store what an app declares; the last one that starts wins, as for groups."""
        now_ms = yield from self._store.now_ms()
        found = yield from self._swap(
            definition.name,
            lambda old: replace(definition, changed_by=self._store.actor).redefined(old, now_ms),
        )
        assert found is not None
        return found

    def move(self, name: str, position: int, last: int | None) -> Operation[None]:
        """Slots up to `position` are done with, and `last` is published."""

        def moved(old: ScheduleRecord | None) -> ScheduleRecord | None:
            if old is None:
                return None
            newest = max(filter(None, (old.last, last)), default=None)
            return replace(old, position=max(old.position, position), last=newest)

        yield from self._swap(name, moved)

    def pause(self, name: str, *, paused: bool) -> Operation[ScheduleRecord]:
        """Pause or resume one; what fell due in a pause is not made up. Raises ScheduleNotFound."""
        check_schedule(name)
        now_ms = yield from self._store.now_ms()

        def decided(old: ScheduleRecord | None) -> ScheduleRecord | None:
            if old is None or old.paused is paused:
                return old
            position = old.position if paused else max(old.position, now_ms // 1000)
            return replace(
                old,
                paused=paused,
                position=position,
                changed_by=self._store.actor,
                changed_at_ms=now_ms,
            )

        found = yield from self._swap(name, decided)
        if found is None:
            raise (yield from self._missing(name))
        return found

    def delete(self, name: str) -> Operation[None]:
        """Delete one. Raises ScheduleNotFound."""
        yield from self.find(name)
        yield from self._swap(name, lambda _: None)

    def _swap(self, name: str, decide: Decide) -> Operation[ScheduleRecord | None]:
        def decided(old: str) -> str:
            was = ScheduleRecord.decode(name, old) if old else None
            record = decide(was)
            if record is was:
                return old
            if was is None or record is None:
                return record.encode() if record else ""
            return with_unknown(old, was.encode(), record.encode())

        stored = yield from compare_and_set(self._store.keys, self._stored_in, name, decided)
        return ScheduleRecord.decode(name, stored) if stored else None

    def _missing(self, name: str) -> Operation[ScheduleNotFound]:
        hint = (yield from meant(self._stored_in, name)) or ": `rqretry cron list` shows all"
        where = f"in namespace {show(self._store.namespace)}"
        return ScheduleNotFound(f"there is no schedule {show(name)} {where}{hint}")
