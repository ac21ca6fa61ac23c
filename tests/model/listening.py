"""Rules: broadcast readers, and a group that consumes the dead letters of another one."""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rqretry.core.receipt import Receipt
from rqretry.protocol import broadcast, lease, maintain
from rqretry.protocol.broadcast import Entry, Mark
from rqretry.protocol.lease import Failure
from tests.model.checked import SOURCE, VIEW
from tests.model.leasing import VISIBILITY_MS
from tests.model.model import DEAD, LEVELS_MS
from tests.model.publishing import parts
from tests.model.transacting import Transacting

READERS = 3


@dataclass
class Reader:
    """Somebody who listens to one partition; it knows nothing but its place."""

    part: int
    mark: Mark
    got: int = 0
    missed: int = 0
    joined: int = 0


class Listening(Transacting):
    """Others look on, and nothing is different for it."""

    @precondition(lambda self: self.route.broadcast)
    @rule(part=parts)
    def join(self, part: int) -> None:
        part %= len(self.keys)
        mark = self.run(broadcast.now_at(self.keys[part]))
        cast = self.model[part].cast
        assert cast is not None
        assert mark.passed == len(cast.shown)
        self.readers = [*self.readers, Reader(part, mark, joined=mark.passed)][-READERS:]

    @precondition(lambda self: self.readers)
    @rule(pick=st.integers(0, READERS - 1), count=st.sampled_from([1, 2, 100]))
    def listen(self, pick: int, count: int) -> None:
        """Every message published while it is there, once and in order; what is gone is counted."""
        reader = self.readers[pick % len(self.readers)]
        cast = self.model[reader.part].cast
        assert cast is not None
        command = broadcast.read_after(self.keys[reader.part], reader.mark, count=count)
        entries: list[Entry] = self.run(command)
        for entry in entries:
            gap = entry.first - reader.mark.passed
            assert gap >= 0
            reader.missed, reader.got = reader.missed + gap, reader.got + len(entry.messages)
            ids = [id_ for id_, _ in entry.messages]
            assert ids == cast.shown[entry.first : entry.first + len(ids)]
            reader.mark = entry.end
        assert reader.got + reader.missed == reader.mark.passed - reader.joined
        if count > len(entries):
            assert reader.mark.passed == len(cast.shown)

    @precondition(lambda self: self.names)
    @rule(part=parts, verb=st.sampled_from(["succeed", "give_up", "release"]))
    def read_dead_letters(self, part: int, verb: str) -> None:
        """Each dead letter once; whatever becomes of it there, the letter stays."""
        part %= len(self.keys)
        keys = self.keys[part].group(VIEW, len(LEVELS_MS), SOURCE)
        letters = self.model[part].groups[SOURCE].at(DEAD)
        deaths = sorted((died, id_) for id_, died in letters.items())
        new = [death for death in deaths if (part, *death) not in self.fed]
        self.fed.update((part, *death) for death in new)
        assert self.run(maintain.feed_dlq_group(keys, worker="w1")) == len(new)
        listed = [*self.unread.get(part, ()), *(id_ for _, id_ in new)]
        wanted = list(dict.fromkeys(id_ for id_ in listed if id_ in letters))
        leased = self.run(
            lease.lease(keys, worker="w1", want=500, visibility_ms=VISIBILITY_MS, prefer="ready")
        )
        assert leased.ids == wanted
        pairs = zip(leased.ids, leased.numbers, strict=True)
        receipts = [Receipt(id_, lease_no) for id_, (lease_no, _) in pairs]
        self.unread[part] = wanted if verb == "release" else []
        if receipts:
            self.settle_dead_letters(part, receipts, verb)

    def settle_dead_letters(self, part: int, receipts: list[Receipt], verb: str) -> None:
        keys = self.keys[part].group(VIEW, len(LEVELS_MS), SOURCE)
        if verb == "succeed":
            verdicts = self.run(lease.succeed(keys, receipts, worker="w1"))
        elif verb == "release":
            verdicts = self.run(lease.release(keys, receipts, worker="w1"))
        else:
            failures = [Failure(receipt, -1, "", 0.5, "failure", "{}") for receipt in receipts]
            answers = self.run(lease.fail(keys, failures, worker="w1", tracebacks={}))
            verdicts = [answer.verdict.encode() for answer in answers]
        assert set(verdicts) == {b"OK"}
