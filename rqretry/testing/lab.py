"""The lab: an app on a private server, with a clock that moves when the test says so."""

import asyncio
import contextvars
import itertools
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from rqretry.app import App
from rqretry.client import Admin, Client
from rqretry.core.durations import Duration, milliseconds
from rqretry.core.errors import ConfigError, InvalidArgument
from rqretry.core.message import PublishOptions
from rqretry.core.message_id import MessageId
from rqretry.protocol.command import Command
from rqretry.protocol.keys import ROOT
from rqretry.testing import lab_servers
from rqretry.testing.assertions import Assertions
from rqretry.testing.bound_app import BoundApp
from rqretry.testing.clock import VirtualClock, clock_key
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.testing.engine import MAX_STEPS, RUNNING, Engine
from rqretry.testing.faults_api import FaultInjection, loop_here
from rqretry.testing.lab_clients import make_clients
from rqretry.testing.lab_stores import LabStore
from rqretry.testing.lab_workers import LabWorkers

T = TypeVar("T")

_numbers = itertools.count(1)


class Lab(FaultInjection, Assertions):
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
        self._store.use_clock(self._clock)
        Assertions.__init__(self, self._store, self._clock, self.namespace)
        FaultInjection.__init__(self, Engine(self._store, self._clock, self.namespace))
        self._ids = itertools.count(1)
        self._client, _ = make_clients(self._store, self.namespace, self._ids)
        self._bound: list[BoundApp] = []
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._closed = False
        if app is not None:
            self._begin_with(app)

    # -- the app and the server ----------------------------------------------------------------

    def app(self, app: App) -> App:
        """Bind an app to the lab: its clients publish here, its consumers run here.

        The app's own server is not touched; the app returns to it when the lab is closed.

        Returns:
            The same app.

        Raises:
            ConfigError: The app is in another lab, or its consumers do not fit their groups.
        """
        self._bound.append(BoundApp(app, self._store, self.namespace, self._ids))
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
        """Publish one message; the options, answer and errors are those of Client.publish."""
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

        Returns:
            The number of attempts.

        Raises:
            AssertionError: It was not idle after `max_steps` attempts.
            InvalidArgument: An event loop is running here (await `arun_until_idle`), or this
                is a handler.
        """
        return self._blocking(lambda: self._engine.run(max_steps), "arun_until_idle()")

    async def arun_until_idle(self, max_steps: int = MAX_STEPS) -> int:
        """The same in a test that is a coroutine; handlers run in its event loop."""
        return await self._awaited(lambda: self._engine.run(max_steps))

    def advance(self, duration: Duration, max_steps: int = MAX_STEPS) -> int:
        """Let time pass, and run every attempt at the very millisecond at which it is due.

        Args:
            duration: Seconds, a timedelta or text such as "4h46m".
            max_steps: More attempts than this count as an endless loop.

        Returns:
            The number of attempts.

        Raises:
            AssertionError, InvalidArgument: As run_until_idle.
        """
        end_ms = self._end_ms(duration)
        return self._blocking(lambda: self._engine.advance(end_ms, max_steps), "aadvance()")

    async def aadvance(self, duration: Duration, max_steps: int = MAX_STEPS) -> int:
        """The same in a test that is a coroutine."""
        end_ms = self._end_ms(duration)
        return await self._awaited(lambda: self._engine.advance(end_ms, max_steps))

    def advance_to_next_due(self, max_steps: int = MAX_STEPS) -> int:
        """Run what is due now, then move time to what is due next, if anything is, and run that."""
        run = self._engine.advance
        return self._blocking(lambda: run(None, max_steps), "aadvance_to_next_due()")

    async def aadvance_to_next_due(self, max_steps: int = MAX_STEPS) -> int:
        """The same in a test that is a coroutine."""
        return await self._awaited(lambda: self._engine.advance(None, max_steps))

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Return the apps to their own servers and delete everything. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        while self._bound:
            self._bound.pop().release()
        for workers in self._engine.apps:
            workers.close()
        self._engine.apps.clear()
        self._runner.close()
        if self._own is not None:
            self._own.stop()
        elif self.server == lab_servers.REDIS:
            self._delete_everything()
        self._store.shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Lab on {self.server}, {self.now:g} s, {len(self._engine.apps)} apps>"

    # -- inside --------------------------------------------------------------------------------

    def _open(self, server: str | EmbeddedRedis | None) -> LabStore:
        if isinstance(server, EmbeddedRedis):
            return lab_servers.redis_store(server)
        if lab_servers.choose(server) == lab_servers.FAKEREDIS:
            return lab_servers.fake_store()
        self._own = EmbeddedRedis().start()
        return lab_servers.redis_store(self._own)

    def _begin_with(self, app: App) -> None:
        try:
            self.app(app)
        except BaseException:
            self.close()
            raise

    def _delete_everything(self) -> None:
        found: Command[list[bytes]] = Command(
            "read", (), (), list, arguments=("KEYS", f"{ROOT}:{self.namespace}:*")
        )
        names: list[str | bytes] = [clock_key(self.namespace), *self._store.run(found)]
        self._store.run(Command("delete", (), (), int, arguments=("DEL", *names)))

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
