"""Transactions for producers: messages that no group sees until all of them are committed.

RocketMQ's half messages (docs/decisions/0028). Written once, for asyncio and without it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self, Unpack

from rqretry.catalog.catalog import Catalog
from rqretry.catalog.store import NAMESPACE
from rqretry.core.errors import (
    AmbiguousResult,
    InvalidArgument,
    QueueFull,
    RqretryError,
    StoreUnavailable,
    TransactionDecided,
    show,
)
from rqretry.core.history_notes import NOTHING, encode_noted
from rqretry.core.limits import MAX_TRANSACTION_MESSAGES, check_topic
from rqretry.core.message import OutgoingMessage, PublishOptions, outgoing, several
from rqretry.core.message_id import MessageId
from rqretry.core.public_call import hinted
from rqretry.maintenance.transaction_resolver import STATE_TEXTS, resolve, unknown
from rqretry.observability import observer
from rqretry.producer.chunk import chunks
from rqretry.producer.encode import Encoder, check_publishable, partition_for
from rqretry.producer.lane import refused
from rqretry.protocol import transaction
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.facade import AsyncFacade, Facade, SyncFacade, Verb
from rqretry.protocol.publish import Prepared
from rqretry.protocol.transaction import (
    COMMITTED,
    ROLLED_BACK,
    Enlisted,
    Half,
    PreparedHalves,
    Terms,
)

_ROUNDS = 50
_MOST_TRACED = 128


class TransactionOperations:
    """One transaction of one producer.

    Nothing is sent before the first message, so a transaction without any costs nothing.
    """

    def __init__(self, encoder: Encoder, terms: Terms, worker: str) -> None:
        self._encoder = encoder
        self.catalog: Catalog = encoder.catalog
        self.terms = terms
        self.worker = worker
        self.id: str = encoder.make_id(encoder.clock.now_ms())
        self.decision = ""
        self._number = 0
        self._partitions: set[tuple[str, int]] = set()
        self._published: list[observer.Published] = []
        """For traces; the first ones."""
        self._doubtful: tuple[str, int] | None = None
        """A partition of which nobody knows whether it was enlisted."""

    def publish(
        self, body: Any, *, topic: str | None = None, **options: Unpack[PublishOptions]
    ) -> Operation[MessageId]:
        """Add one message to the transaction.

        Args:
            body: A JSON-compatible value, or raw bytes; or an OutgoingMessage.
            topic: Another topic; default that of the transaction.
            options: See PublishOptions; a message of a transaction cannot be delayed.

        Returns:
            The id; `.duplicate` says that the message was published before with this id. It is
            then stored once, and not a part of the transaction.

        Raises:
            InvalidArgument, MessageTooLarge, CodecError: Nothing was written.
            TransactionDecided: It is committed or rolled back; nothing was written.
            AmbiguousResult: It may be stored; repeat it with `id=error.id`, or roll back.
            StoreUnavailable, QueueFull: Nothing was written.
        """
        (made,) = yield from self._publish([outgoing(body, options)], topic, batch=False)
        return made

    def publish_many(
        self, messages: Sequence[Any], *, topic: str | None = None
    ) -> Operation[list[MessageId]]:
        """Add several messages, in bounded calls; see `publish`.

        Where it raises, some of them may be in the transaction: roll it back.

        Args:
            messages: Bodies or OutgoingMessages.
            topic: Another topic; default that of the transaction.
        """
        return (yield from self._publish(list(several(messages)), topic, batch=True))

    def commit(self) -> Operation[None]:
        """Publish all messages, now and for good; repeating it is harmless.

        Raises:
            TransactionDecided: It was rolled back before, here, by a checker or an operator.
            TransactionNotFound: It was finished more than ten minutes ago.
            StoreUnavailable: It is not known whether it is committed; repeat it.
        """
        yield from self._decide(COMMITTED)

    def rollback(self) -> Operation[None]:
        """Remove all messages; repeating it is harmless.

        Raises:
            TransactionDecided: It was committed before, here, by a checker or an operator.
            TransactionNotFound: It was finished more than ten minutes ago.
            StoreUnavailable: It is not known whether it is rolled back; repeat it.
        """
        yield from self._decide(ROLLED_BACK)

    def finish(self, error: BaseException | None) -> Operation[None]:
        """After its block: commit it, or roll it back if the block raised; unless it is decided."""
        if self.decision:
            return
        if error is None:
            yield from self.commit()
            return
        try:
            yield from self.rollback()
        except RqretryError as failed:
            error.add_note(
                f"transaction {show(self.id)} could not be rolled back now ({failed}); it stays"
                " invisible, and is checked back"
            )

    # -- inside --------------------------------------------------------------------------------

    def _decide(self, decision: str) -> Operation[None]:
        if self.decision not in ("", decision):
            raise TransactionDecided(
                f"transaction {show(self.id)} cannot be {STATE_TEXTS[decision]}: it was"
                f" {STATE_TEXTS[self.decision]} before, by this program"
            )
        self.decision = decision  # also where the answer is lost: no more messages then
        if self._doubtful and not self._partitions:  # a decision needs a record, late or not
            with suppress(TransactionDecided):
                yield from self._enlist(self._doubtful)
        if self._partitions or self._doubtful:
            yield from resolve(
                self.catalog, self.id, self.terms.group, decision,
                worker=self.worker, published=self._published,
            )  # fmt: skip

    def _publish(
        self, items: list[Any], topic: str | None, *, batch: bool
    ) -> Operation[list[MessageId]]:
        self._check_open()
        name = self.terms.topic if topic is None else check_topic(topic)
        self._check_undelayed(items)
        if self._number + len(items) > MAX_TRANSACTION_MESSAGES:
            raise InvalidArgument(
                f"transaction {show(self.id)} would have {self._number + len(items)} messages; at"
                f" most {MAX_TRANSACTION_MESSAGES} are allowed: use more than one"
            )
        if observer.installed is None:
            return (yield from self._send(items, name))
        namespace = self.catalog.namespace
        with observer.publication(
            namespace, name, items, batch=batch, transaction=self.id
        ) as watched:
            made = yield from self._send(watched.items, name)
            watched.done(made)
            room = _MOST_TRACED - len(self._published)
            self._published += [(name, trace) for trace in watched.traces[:room]]
            return made

    def _send(self, items: list[Any], name: str) -> Operation[list[MessageId]]:
        if not self._encoder.clock.known:  # ids hold the server's time
            check_publishable(items)
            yield Command("ping", (), (), bytes, arguments=("PING",))
        prepared = yield from self._encoder.prepare(name, items)
        self._check_open()
        numbered: dict[int, list[Half]] = {}
        for partition, message in prepared:
            self._number += 1
            note = message.noted or NOTHING
            half = Half(self._number, message, note.tag or "", note.message_group or "")
            numbered.setdefault(partition, []).append(half)
        answers: dict[int, MessageId] = {}
        while numbered:
            partition, halves = numbered.popitem()
            yield from self._enlist((name, partition))
            for half in (yield from self._prepare(name, partition, halves, answers)):
                elsewhere = self._partition_of(name, half)
                numbered.setdefault(elsewhere, []).append(half)
        return [answers[number] for number in sorted(answers)]

    def _partition_of(self, topic: str, half: Half) -> int:
        record = self.catalog.store.known.get(topic)
        return partition_for(half.message, record.partitions if record else 1)

    def _check_open(self) -> None:
        if self.decision:
            raise self._closed(f"{STATE_TEXTS[self.decision]} before")

    def _closed(self, how: str) -> TransactionDecided:
        return TransactionDecided(
            f"transaction {show(self.id)} takes no more messages: it was {how}"
        )

    def _check_undelayed(self, items: Sequence[Any]) -> None:
        for item in items:
            if not isinstance(item, OutgoingMessage):
                continue
            for name in ("delay", "delay_level", "deliver_at", "durability"):
                value = getattr(item, name)
                if value is not None:
                    raise InvalidArgument(
                        f"{name} {show(value)} cannot be given in a transaction: its messages are"
                        " delivered when it is committed"
                    )

    def _enlist(self, partition: tuple[str, int]) -> Operation[None]:
        if partition in self._partitions:
            return
        times, answer = self.catalog.store.times, Enlisted("LATE")
        try:
            for _ in range(_ROUNDS):
                answer = yield transaction.enlist(
                    self.catalog.keys, self.id, partition, self.terms,
                    known=bool(self._partitions), worker=self.worker,
                    seen_ms=times.get(NAMESPACE, 0),
                )  # fmt: skip
                if answer.status != "LATE":
                    break
                times[NAMESPACE] = answer.now_ms
        except AmbiguousResult as error:
            self._doubtful = partition
            raise StoreUnavailable(
                f"transaction {show(self.id)} may be open ({error.reason}), and the message is not"
                " in it: publish it again, or roll back"
            ) from error
        if answer.status == "GONE":
            raise unknown(self.catalog, self.id)
        if answer.status != "OK":
            because = f" ({answer.reason})" if answer.reason else ""
            raise self._closed(f"{STATE_TEXTS[answer.status]} by {answer.decider}{because}")
        self._partitions.add(partition)

    def _prepare(
        self, topic: str, partition: int, halves: list[Half], answers: dict[int, MessageId]
    ) -> Operation[list[Half]]:
        """Store them; those that belong elsewhere, since the topic has grown, are returned."""
        by_id = {id(half.message): half for half in halves}
        for chunk in chunks([half.message for half in halves]):
            batch = [by_id[id(message)] for message in chunk]
            answer = yield from self._call(topic, partition, batch)
            if answer is None:
                continue
            for half, code in zip(batch, answer.verdicts, strict=True):
                answers[half.number] = self._verdict(half.message, code)
                del by_id[id(half.message)]
        return [*by_id.values()]

    def _call(
        self, topic: str, partition: int, batch: list[Half]
    ) -> Operation[PreparedHalves | None]:
        """Prepare them; None where one belongs elsewhere by now, and nothing was stored."""
        answer = PreparedHalves("STALE_ROUTE")
        messages = [half.message for half in batch]
        notes = encode_noted([m.id for m in messages], [m.noted for m in messages], partial=True)
        times, place = self.catalog.store.times, (topic, partition)
        for _ in range(_ROUNDS):
            keys = self.catalog.partition(topic, partition)
            if self.catalog.topics.route(topic, partition).closed:
                yield from self.catalog.growth.wait(topic)
            if any(self._partition_of(topic, half) != partition for half in batch):
                return None
            route = self.catalog.topics.route(topic, partition)
            answer = yield transaction.prepare(
                keys, route, self.id, batch,
                worker=self.worker, seen_ms=times.get(place, 0), blob=notes,
            )  # fmt: skip
            if answer.status == "LATE":
                times[place] = answer.now_ms
            elif answer.status == "AGAIN":
                continue
            elif answer.route is None:
                break
            else:
                yield from self.catalog.topics.note_route(*place, answer.route, create=True)
        if answer.status == "FULL":
            raise QueueFull.of(topic, answer.stored, answer.limit)
        if answer.status != "OK":
            raise self._closed("decided meanwhile, by a checker or an operator")
        return answer

    def _verdict(self, message: Prepared, code: str) -> MessageId:
        if code in "CH":
            raise refused(message.id, code)
        return MessageId(message.id, duplicate=code == "D")


class _Verbs(Facade[Any, TransactionOperations]):
    publish = Verb(TransactionOperations.publish)
    publish_many = Verb(TransactionOperations.publish_many)
    commit = Verb(TransactionOperations.commit)
    rollback = Verb(TransactionOperations.rollback)

    @property
    def id(self) -> str:
        """The transaction's id."""
        return self._parts.operations.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class Transaction(_Verbs, SyncFacade[TransactionOperations]):
    """A transaction without asyncio; a context manager that commits, or rolls back if it raises.

    Attributes:
        id: Its name, in checks, errors and `rqretry transaction`.
    """

    def __enter__(self) -> Self:
        return self

    @hinted
    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self._parts.store.perform(self._parts.operations.finish(error))


class AsyncTransaction(_Verbs, AsyncFacade[TransactionOperations]):
    """A transaction with asyncio; `async with` commits it, or rolls back if the block raises.

    Attributes:
        id: Its name, in checks, errors and `rqretry transaction`.
    """

    async def __aenter__(self) -> Self:
        return self

    @hinted
    async def __aexit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        finishing = self._parts.store.perform(self._parts.operations.finish(error))
        # A block that is cancelled must not leave its transaction to the checker.
        await (finishing if error is None else asyncio.shield(finishing))
