"""Rules: transactions, prepared, left open, checked back, parked and decided."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rqretry.core.history_notes import Noted
from rqretry.protocol import transaction
from rqretry.protocol.publish import Prepared
from rqretry.protocol.transaction import COMMITTED, ROLLED_BACK, Decided, Terms
from tests.model.checked import CATALOG, PRODUCERS
from tests.model.operating import Operating
from tests.model.partition import Half
from tests.model.publishing import message_groups, parts, tags
from tests.model.transactions import (
    AFTER_MS,
    EVERY_MS,
    FINISH_LEASE_MS,
    MOST_CHECKS,
    UNDECIDED,
    Record,
)

TOPIC = "t"
TERMS = Terms(PRODUCERS, TOPIC, AFTER_MS, EVERY_MS, MOST_CHECKS)
CLAIM_MS = 30_000
decisions = st.sampled_from([COMMITTED, ROLLED_BACK])
transactions = st.integers(0, 3)


class Transacting(Operating):
    """Several messages at once, or none."""

    @rule(
        pick=transactions,
        part=parts,
        count=st.integers(1, 3),
        given=st.booleans(),
        body=st.booleans(),
        tag=tags,
        name=message_groups,
    )
    def prepare(
        self, pick: int, part: int, count: int, given: bool, body: bool, tag: str, name: str
    ) -> None:
        part %= len(self.keys)
        tx = self.some(pick) if pick else None
        known = tx is not None
        self.made += 1
        tx = tx or f"tx{self.made}"
        place = (TOPIC, part)
        command = transaction.enlist(
            CATALOG, tx, place, TERMS, known=known, worker="p", seen_ms=self.now
        )
        status = self.transactions.enlist(tx, part, self.now, known=known)
        assert self.run(command).status == status
        if status == "OK":
            ids = [f"given-{n}" if given else self.fresh() for n in range(count)]
            self.store_halves(part, tx, ids, f"body {body}", tag=tag, name=name)

    @rule(part=parts, tag=tags, name=message_groups, decision=decisions, deliver=st.booleans())
    def transact(self, part: int, tag: str, name: str, decision: str, deliver: bool) -> None:
        """A producer without accidents; what it commits is delivered by it, or by others later."""
        self.prepare(0, part, 2, given=False, body=True, tag=tag, name=name)
        (tx,) = list(self.transactions.records)[-1:]
        self.carry_out(tx, self.decided(tx, decision))
        if deliver:
            self.deliver(part % len(self.keys))

    def some(self, pick: int) -> str | None:
        """A transaction that there is, or was."""
        known = list(self.transactions.records)[-3:]
        return known[pick % len(known)] if known else None

    def store_halves(
        self, part: int, tx: str, ids: list[str], content: str, *, tag: str, name: str
    ) -> None:
        """Twice: whoever repeats it is answered as before."""
        model = self.model[part]
        given = ids[0].startswith("given")
        digest, keys = content if given else "", ("half", "k") if name else ()
        batch, wanted = [], []
        for id_ in ids:
            self.made += 1
            message = Prepared(id_, content.encode(), digest, "", Noted(None, keys))
            batch.append(transaction.Half(self.made, message, tag, name))
            if given and not self.remembered(part, id_):
                self.forget_receipts(part, {id_})
            half = Half(tx, self.made, tag, name)
            wanted.append(model.prepare(id_, content, self.now, half, given=given, keys=keys))
        command = transaction.prepare(
            self.keys[part], self.route, tx, batch, worker="p", seen_ms=self.now
        )
        for _ in range(2):
            answer = self.run(command)
            assert (answer.status, answer.verdicts) == ("OK", "".join(wanted))

    @precondition(lambda self: any(model.closed for model in self.model))
    @rule(part=parts, pick=transactions)
    def prepare_late(self, part: int, pick: int) -> None:
        """What was sent before the decision and comes after it is refused."""
        part %= len(self.keys)
        closed = list(self.model[part].closed)
        if closed:
            message = Prepared(self.fresh(), b"late", "", "")
            batch = [transaction.Half(1, message, "", "")]
            tx = closed[pick % len(closed)]
            command = transaction.prepare(
                self.keys[part], self.route, tx, batch, worker="p", seen_ms=self.now
            )
            assert self.run(command).status == "CLOSED"

    @precondition(lambda self: self.transactions.records)
    @rule(pick=transactions, decision=decisions, cut=st.sampled_from([None, None, 0, 1]))
    def decide(self, pick: int, decision: str, cut: int | None) -> None:
        """By its producer or an operator, who may be cut off before it is carried out."""
        tx = self.some(pick)
        assert tx is not None
        self.carry_out(tx, self.decided(tx, decision), cut)

    def decided(self, tx: str, decision: str, claim: int | None = None) -> str:
        wanted = self.transactions.decide(tx, decision, self.now, claim)
        answer: Decided = self.run(
            transaction.decide(
                CATALOG, tx, PRODUCERS, decision,
                worker="p", lease_ms=FINISH_LEASE_MS, claim=claim,
            )
        )  # fmt: skip
        assert answer.status == wanted
        if wanted in ("OK", "ALREADY"):
            record = self.transactions.records[tx]
            assert answer.decided_ms == record.decided
            assert [number for _, number in answer.partitions] == record.places
        return wanted

    def carry_out(self, tx: str, status: str, cut: int | None = None) -> None:
        """Place by place; repeating it is harmless."""
        if status not in ("OK", "ALREADY"):
            return
        record = self.transactions.records[tx]
        places = list(record.places)
        for part in places[:cut]:
            self.carry_out_in(part, tx, record)
        if cut is None and places:
            command = transaction.finish(CATALOG, tx, [(TOPIC, part) for part in places])
            assert self.run(command) == 0
            self.transactions.finish(tx, self.now)

    def carry_out_in(self, part: int, tx: str, record: Record) -> None:
        keys, model = self.keys[part], self.model[part]
        if record.state == COMMITTED:
            command = transaction.commit(keys, tx, worker="p", decided_ms=record.decided)
            assert self.run(command) == (model.commit(tx, record.decided, self.now), 0)
        else:
            command = transaction.rollback(keys, tx, worker="p")
            assert self.run(command) == (model.rollback(tx, self.now), 0)

    # -- whoever comes next --------------------------------------------------------------------

    @precondition(lambda self: self.transactions.records)
    @rule(
        answer=st.sampled_from([COMMITTED, ROLLED_BACK, "unknown", "crash"]),
        later=st.booleans(),
    )
    def check_back(self, answer: str, later: bool) -> None:
        """A process with a checker: it completes what was cut off, and answers for the rest."""
        if later:
            self.advance(EVERY_MS)
        claimed = self.run(transaction.claim(CATALOG, [PRODUCERS], lease_ms=CLAIM_MS, limit=100))
        taken, parked = self.transactions.claim(self.now, CLAIM_MS)
        assert {r.id: (r.state, r.claim) for r in claimed.records} == taken
        assert sorted(claimed.parked) == sorted(parked)
        for tx, (state, claim) in taken.items():
            if state in UNDECIDED:
                self.claims.append((tx, claim))
                self.answer(tx, claim, answer)
            else:
                self.carry_out(tx, "ALREADY")
                self.deliver_all()

    @precondition(lambda self: self.claims)
    @rule(pick=st.integers(0, 10_000), answer=st.sampled_from([COMMITTED, ROLLED_BACK, "unknown"]))
    def answer_late(self, pick: int, answer: str) -> None:
        """A checker that took long: somebody else may have had a turn meanwhile."""
        tx, claim = self.claims[pick % len(self.claims)]
        self.answer(tx, claim, answer)

    def answer(self, tx: str, claim: int, answer: str) -> None:
        if answer == "unknown":
            wanted = self.transactions.defer(tx, claim, self.now)
            command = transaction.defer(CATALOG, tx, PRODUCERS, claim=claim, reason="not yet")
            assert self.run(command) == wanted
        elif answer != "crash":
            self.carry_out(tx, self.decided(tx, answer, claim))
