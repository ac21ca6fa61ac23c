"""The records of one run, gathered, and what the run was to show."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rqretry.checks.auditor import judge
from rqretry.checks.defect import Defect
from rqretry.checks.snapshot import Snapshot
from tests.model.checker.history import INFO, OK, Effect, Operation, read_effects, read_history
from tests.model.checker.journal import Journal, read_journal
from tests.model.checker.keyspace import Keyspace
from tests.model.checker.places import partitions_in, seen_in
from tests.model.checker.snapshot import take_snapshot
from tests.model.checker.transitions import Entity, Kind, Transition


class MessageName(NamedTuple):
    """A message as a whole; an id is unique in its topic."""

    topic: str
    id: str


@dataclass(frozen=True)
class Expectations:
    """What a run was to show.

    Attributes:
        covered: The tiers whose promise the faults of the run do not exceed (docs/guarantees.md):
            what was confirmed at another one may be lost, and is counted.
        drained: The run ended with time for everything to end: what waits or is in flight is stuck.
        lateness_ms: How much later than due a retry may be leased in the `quiet` windows, in which
            nothing was broken and a worker was idle; None: only measured.
        quiet: Windows of server time in milliseconds.
        operator: An operator promoted, purged or repaired in the run: a promotion may be early.
        script_errors: Scripts were cut in the run: leftovers that the next lease cleans, a lease
            number skipped and an attempt counted too many are not findings (docs/decisions/0006).
    """

    covered: frozenset[str] = frozenset({"memory", "disk", "replica"})
    drained: bool = True
    lateness_ms: int | None = None
    quiet: tuple[tuple[int, int], ...] = ()
    operator: bool = False
    script_errors: bool = False

    def covers(self, tier: str) -> bool:
        """Whether nothing confirmed at a tier, such as "replica:1", may be lost."""
        return tier.partition(":")[0] in self.covered


@dataclass
class Records:
    """Three independent records of one run.

    Attributes:
        namespace: Whose run.
        history: What clients say that they did.
        effects: What handlers did.
        journal: What the server did; None where it cannot be read (a cluster whose slots moved).
        final: What is there at the end.
        expect: What the run was to show.
        broken: Why the records themselves cannot be trusted, one sentence each.
    """

    namespace: str = "test"
    history: list[Operation] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    journal: Journal | None = None
    final: Keyspace = field(default_factory=Keyspace)
    expect: Expectations = field(default_factory=Expectations)
    broken: list[str] = field(default_factory=list)

    @property
    def transitions(self) -> list[Transition]:
        """Of the journal."""
        return self.journal.transitions if self.journal else []

    @cached_property
    def steps(self) -> dict[Entity, list[Transition]]:
        """The journal of each message in each group."""
        found: dict[Entity, list[Transition]] = defaultdict(list)
        for step in self.transitions:
            if step.group:
                found[step.entity].append(step)
        return found

    @cached_property
    def partitions(self) -> list[Snapshot]:
        """Each partition at the end, as the auditor sees it."""
        keys = partitions_in(self.final, self.namespace)
        return [seen_in(self.final, partition) for partition in keys]

    @cached_property
    def auditor(self) -> list[Defect]:
        """What the auditor says about the end."""
        return [finding for seen in self.partitions for finding in judge(seen)]

    @cached_property
    def held(self) -> set[Entity]:
        """What the groups have at the end, dead letters among it."""
        return {
            Entity(seen.keys.topic, group.keys.group, id_)
            for seen in self.partitions
            for group in seen.groups
            if not group.keys.source
            for id_ in group.held()
        }

    @cached_property
    def dead(self) -> set[Entity]:
        """The dead letters at the end."""
        return {
            Entity(seen.keys.topic, group.keys.group, id_)
            for seen in self.partitions
            for group in seen.groups
            for id_ in group.dead
        }

    @cached_property
    def unrouted(self) -> set[MessageName]:
        """What no group has yet at the end: scheduled, in the backlog, half of a transaction."""
        return {
            MessageName(seen.keys.topic, id_)
            for seen in self.partitions
            for id_ in (*seen.scheduled, *seen.backlog, *seen.half_of)
        }

    @cached_property
    def created(self) -> dict[MessageName, list[Transition]]:
        """The times at which each message was stored."""
        found: dict[MessageName, list[Transition]] = defaultdict(list)
        for step in self.transitions:
            if step.kind is Kind.CREATE:
                found[MessageName(step.topic, step.id)].append(step)
        return found

    @cached_property
    def tokens(self) -> dict[str, MessageName]:
        """The message that was stored with each token."""
        return {
            step.token: name for name, steps in self.created.items() for step in steps if step.token
        }

    def named(self, operation: Operation) -> MessageName | None:
        """The message that a publish was about; None if nobody knows it and nothing is stored."""
        if operation.id:
            return MessageName(operation.topic, operation.id)
        return self.tokens.get(str(operation.fields.get("token", "")))

    def published(self, outcome: str) -> Iterator[tuple[Operation, MessageName]]:
        """Publishes with an outcome, and their messages, where they are known."""
        for operation in self.history:
            if operation.op == "publish" and operation.outcome == outcome:
                name = self.named(operation)
                if name is not None:
                    yield operation, name

    @cached_property
    def accepted(self) -> dict[MessageName, Operation]:
        """The first `ok` publish of each message."""
        found: dict[MessageName, Operation] = {}
        for operation, name in self.published(OK):
            found.setdefault(name, operation)
        return found

    @cached_property
    def ambiguous(self) -> set[MessageName]:
        """Messages of which a publish may have happened."""
        return {name for _, name in self.published(INFO)} - self.accepted.keys()

    @cached_property
    def leases_run(self) -> dict[tuple[Entity, int], list[Effect]]:
        """Every attempt that handlers began, by message and lease number."""
        found: dict[tuple[Entity, int], list[Effect]] = defaultdict(list)
        for effect in self.effects:
            entity = Entity(effect.topic, effect.group, effect.id)
            found[entity, effect.lease_no].append(effect)
        return found

    @cached_property
    def recorded_groups(self) -> set[tuple[str, str]]:
        """(topic, group) of the groups whose handlers are recorded."""
        return {(effect.topic, effect.group) for effect in self.effects}


def gather(
    directory: Path,
    client: Any,
    namespace: str,
    *,
    aof: Path | None,
    expect: Expectations | None = None,
) -> Records:
    """Read the records of a run.

    Args:
        directory: Where its processes wrote history and effects.
        client: redis-py on the server, or several where the namespace is on several.
        namespace: Whose run.
        aof: The directory of the server whose append-only file is the journal (it was started with
            CHECKED_SERVER); None for none.
        expect: What the run was to show.
    """
    records = Records(namespace=namespace, expect=expect or Expectations())
    clients: Iterable[Any] = client if isinstance(client, list | tuple) else [client]
    for one in clients:
        records.final.values.update(take_snapshot(one, namespace).values)
    try:
        records.history = read_history(directory)
        records.effects = read_effects(directory)
        records.journal = None if aof is None else read_journal(aof, namespace)
    except (ValueError, KeyError, FileNotFoundError) as error:
        records.broken.append(f"{type(error).__name__}: {error}")
    return records
