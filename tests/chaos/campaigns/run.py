"""One run: start everything, strike, heal, drain, and judge."""

import contextlib
import signal
import time
from collections import Counter
from pathlib import Path

from rqretry import Client
from rqretry.core.errors import InvalidArgument, RqretryError
from rqretry.core.parts import parts_of
from tests.chaos.campaigns.actors import NAMESPACE, TOPIC
from tests.chaos.campaigns.evidence import Faults, by_message, consult, judge, stated
from tests.chaos.campaigns.nursery import Nursery
from tests.chaos.campaigns.plan import KILLS, Kind, Plan, Strike, What, trials_of
from tests.chaos.campaigns.result import Result
from tests.chaos.campaigns.stages import Stage, stage_for
from tests.model.checker.check import check
from tests.model.checker.history import HistoryWriter
from tests.model.checker.records import Expectations, gather
from tests.support.fleets import until
from tests.support.servers import free_port
from tests.support.soundness import findings_of

WARM_UP_S = 0.3
DRAIN_S = 120.0
STOP_S = 60.0
ANY_WORKER = 8
"""One of so many killed workers is any of them, the others are the oldest one."""
MAX_MESSAGES = 3000
"""Of the topic: publishers that are faster than the workers are told QueueFull, and wait."""
_ALL = Expectations()
_EXPECTED = dict.fromkeys(Kind, _ALL) | {
    Kind.FAILOVER: Expectations(covered=frozenset({"replica"})),
    Kind.EVERYSEC: Expectations(covered=frozenset()),
    Kind.RIGHTS: Expectations(script_errors=True),
    Kind.EMPTY: Expectations(covered=frozenset()),
}
"""What a failover takes of the primary's memory, a power loss of the last second, and what is gone
with all data, is shown."""
_LASTS_NS = 3_000_000_000
"""How long after a fault clients may still wait for what was lost in it."""


class Run:
    """One run of a plan in a folder, which keeps its evidence.

    Args:
        plan: What to do.
        folder: For all that it writes.
        binary: The server; default the one of this machine.
        forked: This process has no other thread, and may be forked: starting is cheap then.
    """

    def __init__(
        self, plan: Plan, folder: Path, *, binary: Path | None = None, forked: bool = False
    ) -> None:
        self.plan = plan
        self._binary = binary
        self.folder = folder
        self._forked = forked
        self._struck: Counter[What] = Counter()
        self.failures_seen = Faults()
        self._stage: Stage
        self._nursery: Nursery
        self._workers: list[int] = []
        self._publishers: list[int] = []
        self._gateways: dict[int, int] = {}
        """Process → port."""
        self._consumers: list[int] = []
        """Of a gateway."""
        self._started = 0
        self._writer = HistoryWriter(folder)

    def execute(self) -> Result:
        """Do it all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with contextlib.ExitStack() as around:
            nursery = Nursery(self.folder / "log", forked=self._forked)
            self._nursery = around.enter_context(nursery)  # first: a stage may have threads
            self._stage = stage_for(self.plan, self.folder, self._binary)
            around.callback(self._stage.close)
            self._create()
            network = time.time_ns()
            self._people()
            time.sleep(WARM_UP_S)
            for strike in self.plan.strikes:
                time.sleep(strike.after_s)
                self._strike(strike)
            time.sleep(WARM_UP_S)
            self._heal()
            if self.plan.proxied:
                now = time.time_ns()
                self.failures_seen.server.append((network, now + _LASTS_NS))
            return self._finish(began)

    # -- people ------------------------------------------------------------------------------

    def _create(self) -> None:
        with Client(self._stage.admin_url, namespace=NAMESPACE) as client:
            with contextlib.suppress(InvalidArgument):  # a publisher was quicker
                client.admin.create_topic(TOPIC, partitions=self.plan.partitions)
            client.admin.set_topic(TOPIC, max_messages=MAX_MESSAGES)

    def _people(self) -> None:
        for _ in range(self.plan.workers):
            self._start_worker()
        # A group gets what is published after it was created: all of them come first.
        with Client(self._stage.admin_url, namespace=NAMESPACE) as client:
            until(lambda: len(list(client.admin.stats(TOPIC).groups)) == self.plan.groups, STOP_S)
        if self.plan.kind is Kind.GATEWAY:
            for _ in range(self.plan.publishers):
                self._start_gateway(free_port())
            port = min(self._gateways.values())
            consumer = self._nursery.start("consume by gateway", port=port, folder=str(self.folder))
            self._consumers.append(consumer)
        for _ in range(self.plan.publishers):
            self._start_publisher()

    def _start_worker(self) -> None:
        pid = self._nursery.start(
            "work", url=self._stage.url, groups=self.plan.groups, folder=str(self.folder)
        )
        self._workers.append(pid)

    def _start_gateway(self, port: int) -> None:
        pid = self._nursery.start("gateway", url=self._stage.url, port=port)
        self._gateways[pid] = port

    def _start_publisher(self) -> None:
        number = self._started
        self._started += 1
        durabilities = self.plan.durabilities
        ports = sorted(self._gateways.values())
        pid = self._nursery.start(
            "publish by gateway" if ports else "publish",
            **({"port": ports[number % len(ports)]} if ports else {"url": self._stage.url}),
            folder=str(self.folder),
            name=f"p{number}",
            own_ids=bool(ports) or (number + self.plan.seed) % 2 == 0,
            seed=self.plan.seed * 1000 + number,
            batch=self.plan.batch,
            rate=self.plan.rate,
            durability=durabilities[number % len(durabilities)],
        )
        self._publishers.append(pid)

    # -- striking ----------------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        match strike.what:
            case What.KILL_WORKER:
                # Most often the oldest one: a new one has not begun to work.
                at = strike.which % len(self._workers) if strike.which % ANY_WORKER == 0 else 0
                pid = self._workers.pop(at)
                self.failures_seen.killed[str(pid)] = time.time_ns()
                self._kill(pid, strike.what)
                self._writer.fault("kill", pid=pid)
                self._start_worker()
            case What.KILL_PUBLISHER:
                at = strike.which % len(self._publishers)
                self._kill(self._publishers.pop(at), strike.what)
                self._start_publisher()
            case What.KILL_GATEWAY:
                begin, pid = time.time_ns(), [*self._gateways][strike.which % len(self._gateways)]
                self._kill(pid, strike.what)
                time.sleep(strike.for_s)
                self._start_gateway(self._gateways.pop(pid))
                self.failures_seen.server.append((begin, time.time_ns() + _LASTS_NS))
            case What.STOP_WORKER:
                self._stop_for_a_while(strike)
                self._struck[strike.what] += 1
            case What.NEW_RULES if not self.plan.proxied:
                raise AssertionError("network faults need a proxy")
            case _:
                begin = time.time_ns()
                self._stage.strike(strike)
                self._writer.fault(strike.what)
                self._struck[strike.what] += 1
                if strike.what in (What.FLUSH, What.LOSE_DATA):
                    self.failures_seen.emptied_ns = time.time_ns()
                    self._create()
                self.failures_seen.server.append((begin, time.time_ns() + _LASTS_NS))

    def _kill(self, pid: int, what: What) -> None:
        ran = self._nursery.signal(pid, signal.SIGKILL)
        assert ran, f"process {pid} had ended by itself; see the log"
        self._struck[what] += 1

    def _stop_for_a_while(self, strike: Strike) -> None:
        pid = self._workers[strike.which % len(self._workers)]
        begin = time.time_ns()
        self._nursery.signal(pid, signal.SIGSTOP)
        time.sleep(strike.for_s)
        self._nursery.signal(pid, signal.SIGCONT)
        self.failures_seen.stopped.setdefault(str(pid), []).append((begin, time.time_ns()))

    def _heal(self) -> None:
        self._stage.heal()
        for pid in self._publishers:
            self._nursery.signal(pid, signal.SIGTERM)
        left = self._nursery.wait(set(self._publishers), STOP_S)
        assert not left, f"publishers do not stop: {left}"

    # -- the end -----------------------------------------------------------------------------

    def _finish(self, began: float) -> Result:
        groups = [f"g{number}" for number in range(self.plan.groups)]
        extra: list[str] = []
        with Client(self._stage.admin_url, namespace=NAMESPACE) as client:
            if not _drained(client, set(groups)):
                extra.append(f"stuck: not drained in {DRAIN_S:g} s: {client.admin.stats(TOPIC)}")
            self._dismiss(extra)
            held = {group: _dead(client, group) for group in groups}
            found = parts_of(client).store.perform(findings_of(NAMESPACE))
            extra += [f"fsck: {f.severity}: {f.key} {f.id}: {f.text}" for f in found]
            counters: dict[str, int] = {}
            for stats in client.admin.stats(TOPIC).groups:
                for verb, count in stats.counters.items():
                    counters[verb] = counters.get(verb, 0) + count
        with self._stage.raw() as raw:
            records = gather(
                self.folder, raw, NAMESPACE, aof=self._stage.data, expect=_EXPECTED[self.plan.kind]
            )
        history = stated(records.history, self.failures_seen.emptied_ns)
        if self.plan.kind is Kind.RIGHTS:  # it lacked one, and was told so
            history.refused.clear()
        verdict = judge(history, by_message(records.effects), self.failures_seen, groups, held)
        verdict.findings += extra
        consult(verdict, check(records), journal=records.journal is not None)
        return Result(
            self.plan.kind, self.plan.seed, self.plan.name, repr(self.plan),
            trials_of(self.plan.kind, self._struck), sum(self._struck[what] for what in KILLS),
            {str(what): count for what, count in self._struck.items()},
            len(self.failures_seen.killed.keys() - {effect.proc for effect in records.effects}),
            round(time.monotonic() - began, 1), verdict, counters, self._stage.notes(),
        )  # fmt: skip

    def _dismiss(self, extra: list[str]) -> None:
        """Stop in good order whoever still writes; gateways when nobody calls them any more."""
        for role, pids in (
            ("worker", self._workers), ("consumer", self._consumers), ("gateway", self._gateways)
        ):  # fmt: skip
            gone = [pid for pid in pids if not self._nursery.signal(pid, signal.SIGTERM)]
            extra += [f"{role} {pid} had ended by itself; see the log" for pid in gone]
            left = self._nursery.wait(set(pids), STOP_S)
            extra += [f"{role} {pid} does not stop" for pid in left]


def _drained(client: Client, groups: set[str]) -> bool:
    """Wait until no group has anything left to do."""
    end = time.monotonic() + DRAIN_S
    while time.monotonic() < end:
        with contextlib.suppress(RqretryError):
            (topic,) = client.admin.stats(TOPIC).topics
            rest = topic.scheduled + topic.backlog
            for group in topic.groups:
                rest += group.ready + group.retry + group.inflight + group.waiting_count
            if rest == 0 and {group.group for group in topic.groups} == groups:
                return True
        time.sleep(0.1)
    return False


def _dead(client: Client, group: str) -> set[str]:
    return {dead_record.id for dead_record in client.admin.dead_letters(group)}
