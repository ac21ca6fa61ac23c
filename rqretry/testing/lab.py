"""The lab: an app on a private server, with a clock that moves when the test says so."""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar, Unpack

from rqretry.app import App
from rqretry.client import Admin, Client
from rqretry.core.closing import Closing
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import ConfigError, InvalidArgument, refuse
from rqretry.core.limits import check_count
from rqretry.core.message import PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.core.parts import parts_of
from rqretry.core.redis_url import RedisUrl
from rqretry.maintenance.upkeep import Round, Upkeep
from rqretry.protocol.keys import ROOT
from rqretry.testing import lab_servers
from rqretry.testing.assertions import Assertions
from rqretry.testing.bound_app import bound
from rqretry.testing.clock import VirtualClock, clock_key, virtual_time
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.testing.engine import MAX_STEPS, RUNNING, Engine, One
from rqretry.testing.faults import Fault, WorkerCrash
from rqretry.testing.lab_clients import LabClients
from rqretry.testing.lab_stores import LabStore
from rqretry.testing.lab_workers import LabWorkers

T = TypeVar("T")

_numbers = itertools.count(1)


class Lab(Closing, Assertions):
    """Runs an app's real handlers and the real scripts in virtual time, one message at a time.

    A context manager; the fixture `lab` makes and closes one for each test. It implements none
    of the rules of retrying itself: what a message does here, it does in production.

    Args:
        app: The app to test; more can be added with `app`.
        server: "redis" (a private real server), "fakeredis", or a private server that is
            running; default Redis if this machine has one, else fakeredis.

    Raises:
        ConfigError: The server is not there, or fakeredis is not installed.
        InvalidArgument: `server` is something else.
    """

    def __init__(self, app: App | None = None, server: str | EmbeddedRedis | None = None) -> None:
        self.namespace = f"lab-{next(_numbers)}"
        self._own: EmbeddedRedis | None = None
        self._store = self._open(server)
        self._clock = VirtualClock()
        self._store.session.clock = self._clock  # from here on the server's time is the lab's
        super().__init__(self._store, self._clock, self.namespace)
        self._engine = Engine(self._store, self._clock, self.namespace)
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop while the lab runs."""
        self._ids = itertools.count(1)
        clients = LabClients(self._store, self._ids)
        self._client = clients.client(str(self._store.url), namespace=self.namespace)
        self._bound = ExitStack()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._closed = False
        if app is not None:
            self._begin_with(app)

    # -- the app and the server ----------------------------------------------------------------

    def app(self, app: App) -> App:
        """Bind an app to the lab: its clients publish here, its consumers run here.

        The app's own server is not touched; the app returns to it when the lab is closed.

        Args:
            app: The app.

        Returns:
            The same app.

        Raises:
            ConfigError: The app is in another lab, or its consumers do not fit their groups.
        """
        self._bound.enter_context(bound(app, self._store, self.namespace, self._ids))
        workers = LabWorkers(app, self._store)
        self._engine.apps.append(workers)
        workers.join()
        return app

    @property
    def server(self) -> str:
        """Where it runs: "redis" or "fakeredis"."""
        return lab_servers.REDIS if type(self._store) is LabStore else lab_servers.FAKEREDIS

    @property
    def url(self) -> str:
        """The private server's URL; a client made with it is on the real clock, not the lab's.

        Raises:
            ConfigError: The lab runs on fakeredis, which has none.
        """
        if self.server == lab_servers.FAKEREDIS:
            raise ConfigError("fakeredis has no URL: use lab.client, or a lab on a real Redis")
        return str(self._store.url)

    @property
    def client(self) -> Client:
        """A client without asyncio, on the lab's server and clock."""
        return self._client

    @property
    def admin(self) -> Admin:
        """The operator's verbs, on the lab's server and clock."""
        return self._client.admin

    # -- publishing ----------------------------------------------------------------------------

    def publish(self, topic: str, body: Any, **options: Unpack[PublishOptions]) -> MessageId:
        """Publish one message; arguments, answer and errors are those of Client.publish."""
        self._engine.join()
        return self._client.publish(topic, body, **options)

    def publish_many(self, topic: str, messages: Iterable[Any]) -> list[MessageId]:
        """Publish many messages; see Client.publish_many."""
        self._engine.join()
        return self._client.publish_many(topic, messages)

    # -- time ----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the lab was made."""
        return self._clock.seconds(self._clock.ms)

    def run_until_idle(self, max_steps: int = MAX_STEPS) -> int:
        """Run every attempt that is due now, until nothing is ready or due. Time stands still.

        Args:
            max_steps: More attempts than this count as an endless loop; default 10000.

        Returns:
            The number of attempts.

        Raises:
            AssertionError: It was not idle after `max_steps` attempts.
            InvalidArgument: An event loop is running here (await `arun_until_idle`), or this
                is a handler.
        """
        return self._blocking(lambda: self._engine.run(max_steps), "arun_until_idle()")

    async def arun_until_idle(self, max_steps: int = MAX_STEPS) -> int:
        """`run_until_idle` in a test that is a coroutine; handlers run in its event loop."""
        return await self._awaited(lambda: self._engine.run(max_steps))

    def advance(self, duration: Duration, max_steps: int = MAX_STEPS) -> int:
        """Let time pass, and run every attempt at the very millisecond at which it is due.

        Args:
            duration: In seconds, a timedelta or text such as "4h46m".
            max_steps: More attempts than this count as an endless loop; default 10000.

        Returns:
            The number of attempts.

        Raises:
            AssertionError, InvalidArgument: As run_until_idle.
        """
        end_ms = self._end_ms(duration)
        return self._blocking(lambda: self._engine.advance(end_ms, max_steps), "aadvance()")

    async def aadvance(self, duration: Duration, max_steps: int = MAX_STEPS) -> int:
        """`advance` in a test that is a coroutine."""
        end_ms = self._end_ms(duration)
        return await self._awaited(lambda: self._engine.advance(end_ms, max_steps))

    def advance_to_next_due(self, max_steps: int = MAX_STEPS) -> int:
        """Run what is due now, then move time to what is due next, if anything is, and run that.

        Args:
            max_steps: More attempts than this count as an endless loop; default 10000.

        Returns:
            The number of attempts.

        Raises:
            AssertionError, InvalidArgument: As run_until_idle.
        """
        run = self._engine.advance
        return self._blocking(lambda: run(None, max_steps), "aadvance_to_next_due()")

    async def aadvance_to_next_due(self, max_steps: int = MAX_STEPS) -> int:
        """`advance_to_next_due` in a test that is a coroutine."""
        return await self._awaited(lambda: self._engine.advance(None, max_steps))

    # -- faults --------------------------------------------------------------------------------

    def crash(self, worker: str | None = None, *, after_handler: bool = False) -> None:
        """A worker dies: nothing is reported for what it has leased, which expires in time.

        In a handler (of that worker) the worker dies at once: this call does not return, and
        neither `except Exception` nor the server sees anything of it. Elsewhere the crash is armed:
        the worker dies with the next message it leases, before the handler starts.

        Args:
            worker: The worker's name, which in a lab is its consumer group; default whichever is
                running, or takes the next message.
            after_handler: Armed only: the handler runs to its end, and its result is never
                reported.

        Raises:
            InvalidArgument: There is no such worker.
        """
        self._check_worker(worker)
        running = RUNNING.get()
        if running is not None and not after_handler and worker in (None, running.worker):
            running.crash()
            raise WorkerCrash
        fault = Fault.CRASH_AFTER if after_handler else Fault.CRASH
        self._engine.faults.arm(fault, worker=worker)

    def crashing(self, worker: str | None = None) -> AbstractContextManager[None]:
        """Inside `with lab.crashing():` every worker dies with every message.

        Args:
            worker: Only this one, by its name, which is its consumer group; default all.

        Raises:
            InvalidArgument: There is no such worker.
        """
        self._check_worker(worker)
        return self._engine.faults.standing(Fault.CRASH, worker)

    def lose_lease(self, id: str | None = None) -> None:  # noqa: A002 - as publish has it
        """A lease ends while its handler runs: time moves to its deadline; the message expires.

        The handler continues, `message.cancelled` is True, its result is rejected, and the message
        will be delivered again as after a crash. In the handler of the message this happens at
        once; elsewhere it is armed for the next delivery, at the end of its handler.

        Args:
            id: The message; default the one that is running, or the next one.
        """
        running = self._here(id)
        if running is None:
            self._engine.faults.arm(Fault.LOSE_LEASE, id_=id)
        else:
            self._engine.lose(*running)

    def duplicate(self, id: str | None = None) -> None:  # noqa: A002 - as publish has it
        """A message is delivered once more while its handler is still running.

        As lose_lease, and then everything that is due runs until the second delivery has ended;
        only then does the first handler continue. In a plain handler of the message this happens at
        once; elsewhere it is armed for the next delivery: its handler starts after the second one
        has ended, as when a worker stalls between lease and start. After the first expiry the
        second delivery comes at once, later ones by the ladder; after the last attempt there is
        none.

        Args:
            id: The message; default the one that is running, or the next one.

        Raises:
            InvalidArgument: This is an async handler: await `aduplicate`.
        """
        running = self._here(id)
        if running is None:
            self._engine.faults.arm(Fault.DUPLICATE, id_=id)
            return
        if loop_here() is not None:
            raise InvalidArgument("in an async handler write: await lab.aduplicate()")
        assert self._loop is not None
        again = self._engine.duplicate(*running)
        asyncio.run_coroutine_threadsafe(again, self._loop).result()

    async def aduplicate(self) -> None:
        """Duplicate the message of the async handler that awaits this."""
        running = self._here(None)
        if running is None:
            raise InvalidArgument("await lab.aduplicate() in a handler; else call lab.duplicate()")
        await self._engine.duplicate(*running)

    def next_attempt(
        self,
        id: str,  # noqa: A002 - as publish has it
        number: int,
        *,
        group: str | None = None,
        last_error: str = "",
    ) -> None:
        """The next delivery of a message has this number, as if it had failed that often before.

        Args:
            id: A message that waits for its first delivery.
            number: 1 or more; above the group's deliveries, a failure is its last.
            group: Default every group of its topic.
            last_error: What `message.last_error.message` is to say; default it is None.
        """
        checked = check_count(number, name="number")
        for place in self._engine.places:
            if group in (None, place.worker):
                self._engine.set_attempt(place, id, checked, last_error)

    def reap(self) -> int:
        """What `rqretry reaper --once` does: move what is due now in all groups of the lab.

        Groups of simple consumers have no worker here that would. Time stands still.

        Returns:
            How many retries were promoted, leases expired and messages with a delay delivered.
        """
        upkeep, done = (
            Upkeep(parts_of(self._client).catalog, "reaper", chance=lambda: 0.5),
            Round(more=True),
        )
        while done.more:
            done = done._replace(more=False).plus(self._store.perform(upkeep.round()))
        return done.promoted + done.expired + done.delivered

    def _here(self, id_: str | None) -> One | None:
        running = RUNNING.get()
        return None if running is None else running.of(id_)

    def _check_worker(self, worker: str | None) -> None:
        self._engine.join()
        known = list(dict.fromkeys(place.worker for place in self._engine.places))
        if worker is not None and worker not in known:
            names = ", ".join(known) or "it has none"
            refuse("worker", worker, f"is not a worker of this lab: {names}")

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Return the apps to their own servers and delete everything. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._bound.close()
        for workers in self._engine.apps:
            workers.close()
        self._engine.apps.clear()
        self._runner.close()
        if self._own is not None:
            self._own.stop()
        elif self.server == lab_servers.REDIS:
            self._delete_everything()
        self._store.shut()

    def __repr__(self) -> str:
        return f"<Lab on {self.server}, {self.now:g} s, {len(self._engine.apps)} apps>"

    # -- inside --------------------------------------------------------------------------------

    def _open(self, server: str | EmbeddedRedis | None) -> LabStore:
        if not isinstance(server, EmbeddedRedis):
            if lab_servers.choose(server) == lab_servers.FAKEREDIS:
                return lab_servers.fake_store()
            server = self._own = EmbeddedRedis().start()
        return LabStore(RedisUrl.parse(server.url), virtual_time())

    def _begin_with(self, app: App) -> None:
        try:
            self.app(app)
        except BaseException:
            self.close()
            raise

    def _delete_everything(self) -> None:
        names: list[bytes] = self._store.read(list, "KEYS", f"{ROOT}:{self.namespace}:*")
        self._store.write("DEL", clock_key(self.namespace), *names)

    def _blocking(self, make: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        self._check_idle()
        if loop_here() is not None:
            raise InvalidArgument(
                f"an event loop is already running here: write await lab.{instead}"
            )
        # The test's context variables are the handlers', as in a worker that the test started.
        return self._runner.run(self._awaited(make), context=contextvars.copy_context())

    async def _awaited(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_idle()
        self._loop = asyncio.get_running_loop()
        try:
            return await make()
        finally:
            self._loop = None

    def _check_idle(self) -> None:
        if self._loop is not None or RUNNING.get() is not None:
            raise InvalidArgument(
                "the lab is already running: time can be moved by the test, not by a handler or"
                " by two tasks at once"
            )

    def _end_ms(self, duration: Duration) -> int:
        return self._clock.ms + milliseconds(duration, name="duration")


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
