"""A worker registers itself as alive, and thereby proves that it can write where it works.

The proof is the script of the registry, not a PING: a server that answers PING may still be a
replica, have a full disk, or be loading its data (docs/decisions/0029).
"""

import asyncio
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.group_rules import source_of
from rqretry.catalog.store import NewerNamespace
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.catalog_records import BROADCAST, PUSH, GroupRecord
from rqretry.core.errors import ConfigError, InvalidArgument, RqretryError, StoreUnavailable
from rqretry.core.worker_info import groups_of
from rqretry.protocol.command import Command, Operation, batches, side_by_side
from rqretry.protocol.maintain import live_workers, register
from rqretry.transport.store import Store
from rqretry.version import __version__
from rqretry.worker.wakeups import wait_for

log = logging.getLogger("rqretry")

ROSTER_EVERY_S = 7.5
ROSTER_TTL_MS = 15_000
PROOF_S = 1.5
"""How long one proof may take."""
_AGAIN_S = 0.25
_LAST_CALL_S = 1.0
_MOST_REFUSED = 5
_JOINED_AT_ONCE = 8
"""How many groups join again at once: they may all change the record of one topic."""
_MINUTE_S = 60.0


class Condition(NamedTuple):
    """How a worker process is, as the supervisor answers those who ask for its health."""

    state: str
    """starting, working or stopping."""
    fault: str | None
    """Why it cannot lease; None for nothing."""
    proved_at: float
    """Monotonic time of the last call that its server answered as it should."""


class Activity(NamedTuple):
    """What a worker process does, for the list of workers."""

    slots: Mapping[str, tuple[int, int]] = {}
    """Of each group how many attempts run, and how many can at once."""
    failures: int = 0
    """How many attempts have failed so far."""
    done: Mapping[tuple[str, str], int] = {}
    """How many messages are done so far, by topic and group."""


class Registration:
    """The entry of one worker in the registry of live workers."""

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        worker: str,
        specs: Sequence[ConsumerSpec],
        refused: Callable[[], Sequence[str]] = tuple,
        activity: Callable[[], Activity] = Activity,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._keys = catalog.keys
        self._worker = worker
        self._about: dict[str, Any] = {
            "groups": sorted({spec.group for spec in specs}),
            "topics": sorted({topic for spec in specs for topic in spec.topics}),
            "pid": os.getpid(),
            "version": __version__,
            "scripts": store.topology.scripts.version(),
            "tags": [
                (spec.group, topic, spec.tags)
                for spec in specs
                if spec.tags is not None
                for topic in spec.topics
            ],
            "retries": [
                (spec.group, spec.max_retries, None if spec.policy is None else str(spec.policy))
                for spec in specs
                if spec.max_retries is not None or spec.policy is not None
            ],
        }
        topics: dict[str, set[str]] = {}
        for spec in specs:
            topics.setdefault(spec.group, set()).update(spec.topics)
        if any(len(names) < len(self._about["topics"]) for names in topics.values()):
            self._about["consumed"] = {group: sorted(names) for group, names in topics.items()}
        self._refused = refused
        self._activity = activity
        self._past: deque[tuple[float, Activity]] = deque()
        """What it had done at some times of the last minute."""
        self._soon = asyncio.Event()
        self._unsafe: str | None = None

    def describe(self, facts: Mapping[str, Any]) -> None:
        """What the list of workers says besides."""
        self._about |= facts

    def blocked(self, seconds: float) -> Command[str]:
        """Say that the event loop has stood still for so long; for another thread."""
        return self._register(ROSTER_TTL_MS, {"blocked_s": max(1, round(seconds))})

    def soon(self) -> None:
        """Calls of this process begin to fail, or succeed again: find out, without waiting."""
        self._soon.set()

    async def run(self) -> None:
        """Renew it every few seconds, for ever; more often while the server is unreachable.

        Raises:
            NewerNamespace: A newer version has taken the namespace over.
        """
        compared = False
        while True:
            settings = await self._store.prove(self._register(ROSTER_TTL_MS), PROOF_S)
            self._note(settings)
            compared = compared or await self._compare()
            await self._look()
            self._soon.clear()
            await wait_for(self._soon, _AGAIN_S if self._store.fault else ROSTER_EVERY_S)

    def _note(self, settings: str | None) -> None:
        try:
            if settings:
                self._catalog.store.note_settings(settings)
        except NewerNamespace:
            raise  # this worker must not go on
        except RqretryError as error:
            log.warning("%s", error)

    async def _compare(self) -> bool:
        """Say once whether live workers run other scripts; whether they could be asked."""
        try:
            workers = await self._store.perform(live_workers(self._keys))
        except RqretryError:
            return False
        versions = {worker.name: groups_of(worker.about).scripts for worker in workers}
        others = [name for name, its in versions.items() if its and its != self._about["scripts"]]
        if others:
            log.warning(
                "%d live workers run other scripts than this one, %s among them: versions of one"
                " schema work side by side, so go on with the upgrade",
                *(len(others), others[0]),
            )
        return True

    async def _look(self) -> None:
        """Raise the alarm where a server begins to throw messages away."""
        before, self._unsafe = self._unsafe, await self._store.look(PROOF_S)
        if self._unsafe is not None and self._unsafe != before:
            log.error("%s; until then nothing is published", self._unsafe)
        elif before is not None and self._unsafe is None:
            log.info("the server keeps all messages again")

    async def end(self) -> None:
        """Take it out; where that fails, it expires by itself."""
        await self._store.prove(self._register(0), _LAST_CALL_S)

    def _register(self, ttl_ms: int, more: Mapping[str, Any] = {}) -> Command[str]:
        now = {"refused": self._refused()[:_MOST_REFUSED], **self._doing(), **more}
        about = json.dumps({**self._about, **now})
        return register(self._keys, worker=self._worker, about=about, ttl_ms=ttl_ms)

    def _doing(self) -> dict[str, Any]:
        activity, now = self._activity(), time.monotonic()
        self._past.append((now, activity._replace(done=dict(activity.done))))
        while now - self._past[0][0] > _MINUTE_S:
            self._past.popleft()
        since, before = self._past[0]
        busy, slots = map(sum, zip((0, 0), *activity.slots.values(), strict=True))
        failed = activity.failures - before.failures
        rates = [
            (topic, group, round((done - before.done.get((topic, group), 0)) / (now - since), 3))
            for (topic, group), done in activity.done.items()
            if now > since and done > before.done.get((topic, group), 0)
        ]
        of_groups = {group: list(pair) for group, pair in activity.slots.items()}
        return {"busy": busy, "slots": slots, "failed": failed, "rates": rates, "of": of_groups}


def apply_spec(catalog: Catalog, spec: ConsumerSpec, *, explicit: bool) -> Operation[int]:
    """Subscribe a consumer's group; what the consumer names becomes that of a new group.

    `explicit`: also that of a group that is there.

    Returns:
        The group's max_retries; -1 is unlimited.
    """
    settings = _settings(spec, explicit=explicit)
    record = yield from catalog.join(spec.group, _kind(spec), spec.topics, **settings)
    return 0 if spec.broadcast else record.max_retries


def join_again(catalog: Catalog, specs: Sequence[ConsumerSpec]) -> Operation[None]:
    """Subscribe the groups of a worker side by side; an error keeps out its own group alone.

    Raises:
        StoreUnavailable: Not all can be joined now.
    """
    for views in (False, True):  # a group comes before those that consume its dead letters
        chosen = [spec for spec in specs if bool(source_of(spec.group, spec.topics)) is views]
        for some in batches(chosen, _JOINED_AT_ONCE):
            yield from side_by_side([_join_again(catalog, spec) for spec in some])


def _join_again(catalog: Catalog, spec: ConsumerSpec) -> Operation[None]:
    try:
        yield from apply_spec(catalog, spec, explicit=False)
    except StoreUnavailable:
        raise
    except RqretryError as error:
        log.warning("group %s cannot be joined again: %s", spec.group, error)


def check_specs(
    catalog: Catalog, specs: Iterable[ConsumerSpec], *, explicit: bool
) -> Operation[None]:
    """Raise what applying one of them would raise, before any is applied; nothing is written."""
    planned: dict[str, GroupRecord] = {}
    for spec in specs:
        settings = _settings(spec, explicit=explicit)
        try:
            yield from catalog.check(planned, spec.group, _kind(spec), spec.topics, **settings)
        except (ConfigError, InvalidArgument, StoreUnavailable):
            raise
        except RqretryError:  # it keeps out its own group alone, when that is joined
            continue


def _kind(spec: ConsumerSpec) -> str:
    return BROADCAST if spec.broadcast else PUSH


def _settings(spec: ConsumerSpec, *, explicit: bool) -> dict[str, Any]:
    """What a consumer asks for as it joins its group."""
    named: dict[str, Any] = {
        name: getattr(spec, name) for name in ("max_retries", "tags", "max_inflight", "rate_limit")
    }
    named["policy"] = replace(spec.policy, max_retries=None) if spec.policy is not None else None
    settings = {name: value for name, value in named.items() if value is not None}
    return {"start": spec.start, "ordered": spec.ordered, "explicit": explicit, **settings}
