"""Periodic messages: each slot once, whoever is up, and exact in the lab."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from rqretry import App, ConfigError, InvalidArgument, Message, RetryPolicy, ScheduleNotFound
from rqretry.core.message import SLOT_HEADER
from rqretry.core.parts import parts_of
from rqretry.core.schedule import ScheduleRecord, Timetable, message_id
from rqretry.producer.lane import Publishing
from rqretry.producer.periodic import PeriodicMessages
from rqretry.protocol.command import Command, Operation
from rqretry.protocol.maintain import register
from rqretry.testing import Lab
from rqretry.testing.clock import clock_key
from tests.support.soundness import assert_sound

HOUR_MS = 3_600_000
PUBLISH = "publish_with_options"


@dataclass
class Site:
    """Workers of an app on the server of a lab, each of which can be stopped at any command."""

    lab: Lab
    declared: Sequence[ScheduleRecord]

    def __post_init__(self) -> None:
        """Its store and its clock are the lab's; its messages are received by hand."""
        self.client = self.lab.client
        self.store = parts_of(self.client).store
        (name,) = {definition.name for definition in self.declared}
        self.client.admin.create_topic(name)
        self.consumer = self.client.simple_consumer(name, group="g", create_group=True)
        self.seen: Counter[str] = Counter()
        self.alive()

    def alive(self) -> None:
        """A worker says that it lives, which notes the time of the namespace."""
        keys = parts_of(self.client).catalog.keys
        self.store.run(register(keys, worker="w", about="{}", ttl_ms=15_000))

    def set_clock(self, now_ms: int) -> None:
        """The server's clock shows this; it may go back."""
        self.store.clock.ms = now_ms  # type: ignore[attr-defined]
        self.store.run(_sent("SET", clock_key(self.lab.namespace), now_ms))

    def worker(self, *declared: ScheduleRecord) -> PeriodicMessages:
        """A worker that has just started."""
        publishing = Publishing(parts_of(self.client).catalog, self.store.clock)
        return PeriodicMessages(publishing, declared or self.declared)

    def start(self, *declared: ScheduleRecord) -> PeriodicMessages:
        """One that has defined its schedules."""
        worker = self.worker(*declared)
        self.store.perform(worker.define())
        return worker

    def look(self, worker: PeriodicMessages) -> int | None:
        """It publishes what is due; when the next slot is due."""
        return self.store.perform(worker.publish_due())[1]

    def steps(self, operation: Operation[Any]) -> Iterator[str]:
        """Perform an operation command by command; the name of each before it is sent."""
        answer: Any = None
        try:
            while True:
                step: Any = operation.send(answer)
                commands = [step] if isinstance(step, Command) else list(step)
                yield commands[0].verb
                answers = [self.store.run(command) for command in commands]
                answer = answers[0] if isinstance(step, Command) else answers
        except StopIteration:
            return

    def handle(self) -> None:
        """Receive and acknowledge everything that is there."""
        while got := self.consumer.receive(32, wait=0):
            for message in got:
                assert message.id == f"tick:{message.headers[SLOT_HEADER]}"
                self.seen[message.id] += 1
            self.consumer.ack(got)

    def once(self, slots: Sequence[int]) -> None:
        """Each of these slots was received once, and nothing else."""
        self.handle()
        assert self.seen == Counter(message_id("tick", slot) for slot in slots)


def _sent(*arguments: str | int) -> Command[Any]:
    return Command("sent", (), (), lambda reply: reply, arguments=arguments)


def tick(timetable: Timetable, catch_up: str = "all", body: Any = None) -> ScheduleRecord:
    """A schedule of that name."""
    return ScheduleRecord("tick", timetable, catch_up, body)


def every(seconds: int, **options: Any) -> ScheduleRecord:
    """The same with an interval."""
    return tick(Timetable(every_s=seconds), **options)


@pytest.fixture
def lab(lab_redis: Lab) -> Iterator[Lab]:
    """On a real server alone; at its end the data must agree with itself."""
    yield lab_redis
    assert_sound(parts_of(lab_redis.client).store, lab_redis.namespace)


def test_three_workers_of_which_each_slot_kills_one_publish_500_slots_once(lab: Lab) -> None:
    chance = random.Random(79)
    begin = int(datetime(2040, 10, 27, 22, tzinfo=UTC).timestamp())  # a day of 25 hours begins
    table = Timetable("*/3 * * * *", 0, "Europe/Berlin")
    slots = table.upto(begin, begin + 25 * 3600)
    assert len(slots) == 500
    site = Site(lab, [tick(table)])
    site.set_clock(begin * 1000)
    site.alive()
    site.start()
    hung: list[Iterator[str]] = []
    for number, slot in enumerate(slots):
        site.set_clock(slot * 1000)
        site.alive()
        workers = [site.steps(site.worker().publish_due()) for _ in range(3)]
        killed, after = chance.choice(workers), chance.randrange(1, 8)
        count: Counter[int] = Counter()
        while workers:
            one = chance.choice(workers)
            count[id(one)] += 1
            dies = one is killed and count[id(one)] > after
            if dies or next(one, StopIteration) is StopIteration:
                workers.remove(one)
            if dies and number % 10 == 0:
                hung.append(one)  # it was not killed but stopped, and goes on in an hour or more
        if number % 5 == 0:
            site.handle()
        if number % 50 == 49:
            for late in hung:
                list(late)
            hung.clear()
    site.once(slots)


def test_a_worker_that_hung_for_longer_than_ids_are_remembered_publishes_nothing(lab: Lab) -> None:
    site = Site(lab, [every(3600)])
    first = parts_of(lab.client).store.clock.now_ms() // 1000 + 3600
    site.start()
    site.set_clock(first * 1000)
    late = site.steps(site.worker().publish_due())
    assert PUBLISH in late  # it is about to send it
    site.look(site.worker())
    site.once([first])
    site.set_clock((first + 3 * 3600) * 1000)
    lab.run_until_idle()
    list(late)
    site.once([first])


@pytest.mark.parametrize(("catch_up", "wanted"), [("none", 0), ("last", 1), ("all", 4)])
def test_after_an_outage_missed_slots_are_caught_up_as_the_schedule_says(
    lab: Lab, catch_up: str, wanted: int
) -> None:
    site = Site(lab, [every(3600, catch_up=catch_up)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    site.start()
    site.set_clock((begin + 4 * 3600 + 1800) * 1000)
    site.start()  # again, as it was
    next_ms = site.look(site.worker())

    site.once([begin + 3600 * n for n in range(1, 5)][4 - wanted :])
    assert next_ms == (begin + 5 * 3600) * 1000
    site.set_clock(next_ms)
    site.look(site.worker())
    assert site.client.admin.schedule("tick").last_ms == next_ms


def test_a_publish_that_was_not_noted_is_not_repeated_however_late(lab: Lab) -> None:
    site = Site(lab, [every(3600)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    site.start()
    site.set_clock((begin + 3600) * 1000)
    killed = site.steps(site.worker().publish_due())
    assert PUBLISH in killed
    next(killed)  # it has published and not noted it
    site.handle()
    site.set_clock((begin + 30 * 3600) * 1000)
    site.look(site.start())
    site.once([begin + 3600 * n for n in range(1, 31)])


def test_a_server_whose_clock_steps_back_and_jumps_publishes_each_slot_once(lab: Lab) -> None:
    site = Site(lab, [every(600)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    worker, wall = site.start(), begin * 1000
    for minutes, shift in ((30, 0), (30, -HOUR_MS), (120, 0), (60, HOUR_MS), (60, -HOUR_MS)):
        wall += shift
        for _ in range(minutes):
            wall += 60_000
            site.set_clock(wall)
            site.alive()
            site.look(worker)
            site.handle()
    assert set(site.seen.values()) == {1}
    last = site.client.admin.schedule("tick").last_ms
    assert last is not None
    assert set(site.seen) == {
        message_id("tick", slot) for slot in range(begin + 600, last // 1000 + 1, 600)
    }


def test_another_timetable_counts_from_now_on_for_all_workers(lab: Lab) -> None:
    site = Site(lab, [every(600)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    old = site.start()
    site.set_clock((begin + 650) * 1000)
    site.look(old)
    site.start(every(60))
    site.set_clock((begin + 720) * 1000)

    assert site.look(old) == (begin + 780) * 1000
    site.once([begin + 600, begin + 660, begin + 720])


def test_a_schedule_that_was_deleted_comes_back_with_its_worker_and_repeats_nothing(
    lab: Lab,
) -> None:
    site = Site(lab, [every(60)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    worker = site.start()
    site.set_clock((begin + 60) * 1000)
    late = site.steps(site.worker().publish_due())
    assert PUBLISH in late
    site.look(worker)
    site.client.admin.delete_schedule("tick")
    site.look(worker)
    site.set_clock((begin + 120) * 1000)
    list(late)
    site.look(worker)

    site.once([begin + 60, begin + 120])


def test_a_purged_message_and_more_partitions_bring_no_slot_back(lab: Lab) -> None:
    site = Site(lab, [every(60)])
    begin = parts_of(lab.client).store.clock.now_ms() // 1000
    site.start()
    site.set_clock((begin + 60) * 1000)
    killed = site.steps(site.worker().publish_due())
    assert PUBLISH in killed
    next(killed)
    assert lab.client.admin.purge("g", all=True, state="ready") == 1
    site.client.admin.set_topic("tick", partitions=4)
    site.consumer = site.client.simple_consumer("tick", group="g")
    site.set_clock((begin + 120) * 1000)
    site.look(site.worker())

    site.once([begin + 120])


def test_a_damaged_schedule_stops_no_other_one(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(lab, [every(60)])
    good, stored_in = every(60), parts_of(site.client).catalog.keys.schedules
    bad = ScheduleRecord("bad", Timetable(every_s=60))
    site.store.run(_sent("HSET", stored_in, "bad", '{"timetable":{"every_s":-1}}'))
    worker = site.start(good, bad)
    lab.advance("10m")

    for _ in range(3):
        site.look(worker)
    site.handle()

    assert len(site.seen) == 10
    assert [info.name for info in lab.admin.schedules()] == [good.name]
    assert len([r for r in caplog.records if "schedule bad, trying again" in r.message]) == 1
    (problem,) = lab.admin.fsck().problems
    assert (problem.key, problem.id) == (stored_in, "bad")
    assert problem.advice.startswith("delete this field of the hash")
    site.store.run(_sent("HDEL", stored_in, "bad"))
    site.look(worker)
    assert [info.name for info in lab.admin.schedules()] == ["bad", good.name]


def test_a_look_at_many_schedules_is_two_commands(lab: Lab) -> None:
    site = Site(lab, [every(3600)])
    many = [ScheduleRecord(f"s-{n}", Timetable(every_s=3600)) for n in range(50)]
    worker = site.start(*many)

    assert list(site.steps(worker.publish_due())) == ["now"]  # and one to read all of them


# -- as users have it ------------------------------------------------------------------------------


def test_the_lab_publishes_each_slot_at_its_time(lab: Lab) -> None:
    app, nights, ticks = App(), [], []

    @app.cron("30 2 * * *", timezone="Europe/Berlin")
    async def nightly(message: Message[None]) -> None:
        nights.append((message.scheduled_for, message.published_at, message.id))

    @app.cron(every="10m", body={"city": "Berlin"})
    def report(body: dict[str, str]) -> None:
        ticks.append((body, lab.now))

    @app.cron(every="1h", name="plain")
    def nothing() -> None:
        """Takes nothing."""

    lab.app(app)
    assert lab.advance("1d") == 1 + 144 + 24
    slot = datetime(2040, 1, 1, 1, 30, tzinfo=UTC)
    assert nights == [(slot, slot, "nightly:2040-01-01T01:30:00Z")]
    assert ticks == [({"city": "Berlin"}, 600.0 * n) for n in range(1, 145)]
    assert lab.advance_to_next_due() == 1
    assert lab.now == 87_000.0
    assert lab.client.publish("report", {"city": "x"})
    assert lab.run_until_idle() == 1


def test_a_failing_slot_is_retried_and_dead_like_any_message(lab: Lab) -> None:
    app, tries = App(), []

    @app.cron("0 * * * *", policy=RetryPolicy.fixed("10s", max_retries=1))
    def hourly(message: Message[None]) -> None:
        tries.append((message.attempt, message.scheduled_for))
        raise ValueError

    lab.app(app)
    lab.advance("61m")

    slot = datetime(2040, 1, 1, 1, tzinfo=UTC)
    assert tries == [(1, slot), (2, slot)]
    lab.assert_dead("hourly:2040-01-01T01:00:00Z")


def test_trigger_pause_resume_and_delete(lab: Lab) -> None:
    app, seen = App(), []

    @app.cron(every="1h")
    def hourly(message: Message[None]) -> None:
        seen.append(message.scheduled_for)

    lab.app(app)
    lab.advance("90m")
    lab.admin.trigger("hourly")
    assert lab.run_until_idle() == 1
    at = datetime(2040, 1, 1, tzinfo=UTC)
    assert seen == [at.replace(hour=1), at.replace(hour=1, minute=30)]

    assert lab.admin.pause_schedule("hourly").next_ms is None
    assert lab.advance("2h") == 0
    assert lab.admin.resume_schedule("hourly").last_id == "hourly:2040-01-01T01:00:00Z"
    assert lab.advance("1h") == 1
    assert seen[-1] == at.replace(hour=4)
    lab.admin.delete_schedule("hourly")
    assert lab.admin.schedules() == []
    verbs = [entry.verb for entry in lab.admin.audit()]
    for verb in ("trigger", "pause_schedule", "resume_schedule", "delete_schedule"):
        assert verb in verbs
    with pytest.raises(ScheduleNotFound, match="there is no schedule 'hourly'"):
        lab.admin.trigger("hourly")


def test_what_a_handler_or_an_option_cannot_mean_is_refused_where_it_is_written() -> None:
    app = App()

    def two(message: Message[int], other: str) -> None:
        del message, other

    with pytest.raises(ConfigError, match="cannot be called with one message"):
        app.cron(every=60)(two)
    with pytest.raises(ConfigError, match=r"does not take the body .* give body="):
        app.cron(every=60, name="number")(lambda_of_int)
    with pytest.raises(InvalidArgument, match=r'write @app.cron\("0 3 \* \* \*"\)'):
        app.cron(two)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="schedule option 'timzone' is not one of"):
        app.cron("0 3 * * *", timzone="UTC")(lambda_of_int)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match='catch_up \'some\' must be "last", "all" or "none"'):
        app.cron(every=60, catch_up="some")(two)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="must be a JSON value"):
        app.cron(every=60, body=b"x")(two)
    with pytest.raises(InvalidArgument, match="16 KiB"):
        app.cron(every=60, body="x" * 20_000)(two)
    app.cron(every=60, name="number", body=1)(lambda_of_int)
    with pytest.raises(ConfigError, match="there is a schedule 'number' already"):
        app.cron(every=60, name="number", body=1)(lambda_of_int)
    assert [one.name for one in parts_of(app).schedules] == ["number"]


def lambda_of_int(number: int) -> None:
    """Takes a number."""
    del number
