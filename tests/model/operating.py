"""Rules: what operators do: groups that start again, dead letters that are sent back or purged."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from rqretry.catalog.backfill import catch_up
from rqretry.core.failure_record import BY_HAND, describe_cause
from rqretry.protocol import operate as moving
from tests.model.leasing import groups
from tests.model.model import DEAD, DONE, READY, WAITING, Lease
from tests.model.publishing import parts
from tests.model.settling import Settling, picks

BY_OPS = describe_cause(BY_HAND, "no card", "ops")


class Operating(Settling):
    """Operators come."""

    @precondition(lambda self: self.names and not self.route.filtered)  # such a group is refused
    @rule(part=parts, number=groups)
    def start_again(self, part: int, number: int) -> None:
        """A group gets all that is stored and it does not have; its old receipts stay stale."""
        part %= len(self.keys)
        name = self.named(number)
        model, keys = self.model[part], self.group(part, name)
        group = model.groups[name]
        if group.ordered:  # refused, too
            return
        self.advance(1_000)  # the lease number is the time, above every number given out
        self.configure(keys, paused=1, catching_up=1)
        sources = [(self.group(part, other.name), other.byte) for other in self.route.groups]
        count = self.store.perform(catch_up(keys, sources, "ops"))
        after = self.request_parts(self.client.lrange(keys.ready, 0, -1))
        given = after[: len(after) - len(group.lists[READY])]
        wanted = {
            id_
            for id_ in model.stored.keys() - model.scheduled.keys() - model.halves.keys()
            if id_ not in group.leases or group.leases[id_].place == DONE
        }
        assert (count, sorted(given)) == (len(wanted), sorted(wanted))
        assert after[count:] == group.lists[READY]
        for id_ in given:
            group.leases[id_] = Lease(lease_no=self.now)
        group.lists[READY] = after
        self.configure(keys, paused=int(group.paused), catching_up=0)

    @precondition(lambda self: any(g.at(WAITING) for m in self.model for g in m.groups.values()))
    @rule(pick=picks)
    def end_by_hand(self, pick: list[int]) -> None:
        """By an operator: some of what waits for a retry is dead, and no lease number changes."""
        for part, model in enumerate(self.model):
            for name, group in model.groups.items():
                keys, waiting = self.group(part, name), sorted(group.at(WAITING))
                chosen = {waiting[n % len(waiting)] for n in pick} if waiting else set()
                gone = 0
                for level in keys.levels if chosen else ():
                    answers = [(id_, True) for id_ in sorted(chosen)]
                    gone += self.run(
                        moving.dead_letter(keys, level, "zset", answers, actor="ops", record=BY_OPS)
                    ).gone
                assert gone == len(chosen)
                for id_ in sorted(chosen):
                    group.end_by_hand(id_, self.now)

    @precondition(lambda self: any(g.at(DEAD) for m in self.model for g in m.groups.values()))
    @rule(verb=st.sampled_from(["redrive", "purge"]), pick=picks)
    def operate(self, verb: str, pick: list[int]) -> None:
        """By an operator: dead letters, and ids that are none."""
        for part, model in enumerate(self.model):
            for name, group in model.groups.items():
                dead, others = sorted(group.at(DEAD)), sorted(group.leases)
                pool = [*dead, *dead, *others, "unknown"]
                ids = list(dict.fromkeys(pool[n % len(pool)] for n in pick))
                command = getattr(moving, verb)(self.group(part, name), ids, actor="ops")
                verdicts = ["OK" if id_ in dead else "GONE" for id_ in ids]
                assert self.request_parts(self.run(command)) == verdicts
                won = [id_ for id_ in ids if id_ in dead]
                if verb == "redrive":
                    group.redrive(won, model.order)
                else:
                    for id_ in won:
                        model.finish(name, id_, self.now)
