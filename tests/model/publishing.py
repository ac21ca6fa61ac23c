"""Rules: publishing, with and without delay, and taking it back."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from rqretry.core.history_notes import Noted
from rqretry.protocol import operate
from rqretry.protocol import publish as producing
from rqretry.protocol.publish import Prepared
from tests.model.checked import Checked

PRODUCER_TTL_MS = 10**9
parts = st.integers(0, 2)
tags = st.sampled_from(["", "x", "y", "z"])
message_groups = st.sampled_from(["", "g", "gg", "h"])
message_keys = st.sampled_from([(), (), ("k",), ("k", "kk")])
waits = st.sampled_from([0, 1, 1_000, 3_000, 61_000])


class Publishing(Checked):
    """Messages come."""

    @rule(
        part=parts,
        count=st.integers(1, 4),
        delay=waits,
        given=st.booleans(),
        body=st.booleans(),
        repeat=st.booleans(),
        tag=tags,
        name=message_groups,
        keys=message_keys,
    )
    def produce(
        self,
        part: int,
        count: int,
        delay: int,
        given: bool,
        body: bool,
        repeat: bool,
        tag: str,
        name: str,
        keys: tuple[str, ...],
    ) -> None:
        name = "" if delay else name
        self.publish(part, count, delay, given=given, body=body, tag=tag, name=name, keys=keys)
        if repeat:
            self.publish_again()

    def publish(
        self,
        part: int,
        count: int,
        delay: int,
        *,
        given: bool,
        body: bool,
        tag: str,
        name: str = "",
        keys: tuple[str, ...] = (),
    ) -> None:
        part %= len(self.keys)
        content = f"body {body}"
        ids = (
            [f"given-{n}" for n in range(count)] if given else [self.fresh() for _ in range(count)]
        )
        digest = content if given else ""
        note = Noted(tag, keys, name or None)
        messages = [Prepared(i, content.encode(), digest, delay or "", note) for i in ids]
        first_due = min(self.model[part].scheduled.values(), default=None)
        self.calls += 1
        self.last_call = producing.publish(
            self.keys[part],
            self.route,
            messages,
            producer=f"p{self.calls}",
            seq=1,
            checksum="sum",
            lane_ttl_ms=PRODUCER_TTL_MS,
        )
        answer = self.run(self.last_call)
        model = self.model[part]
        reborn = {i for i in ids if given and not self.remembered(part, i)}
        wanted = [
            model.publish(
                i, content, self.now, given=given, delay_ms=delay, tag=tag, name=name, keys=keys
            )
            for i in ids
        ]
        assert answer.status == "OK"
        assert (answer.verdicts or "A" * count) == "".join(wanted)
        accepted = [i for i, letter in zip(ids, wanted, strict=True) if letter == "A"]
        self.forget_receipts(part, reborn & set(accepted))
        shown = {} if delay else dict.fromkeys(accepted, content)
        woken = min(model.scheduled.values(), default=None) != first_due
        if model.cast and (shown or woken):
            model.cast.show(self.now, shown)

    def publish_again(self) -> None:
        assert self.last_call is not None
        assert self.run(self.last_call).status == "DUPLICATE"

    @rule(part=parts, pick=st.integers(0, 10_000), stored=st.booleans())
    def recall(self, part: int, pick: int, stored: bool) -> None:
        """What is not due yet is taken back; what is, or never was, is not."""
        part %= len(self.keys)
        model = self.model[part]
        pool = [*sorted(model.stored if stored else model.scheduled), "unknown"]
        id_ = pool[pick % len(pool)]
        tag = model.tags.get(id_, "")
        command = operate.recall(self.keys[part], id_, worker="w1", tag=tag)
        assert self.run(command) == model.recall(id_, self.now)

    def deliver_all(self) -> None:
        for part in range(len(self.keys)):
            self.deliver(part)

    def deliver(self, part: int) -> None:
        keys, route, members = self.keys[part], self.route, []
        if route.filtered:
            members, _ = self.run(producing.due_members(keys, limit=500))
        if members or not route.filtered:
            self.run(producing.deliver(keys, route, worker="w1", limit=500, members=members))
        self.model[part].deliver(self.now)
