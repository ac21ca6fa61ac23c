"""What `@app.cron` registers: a handler, and the schedule whose messages it gets."""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Unpack

from rqretry.consumer.handler_binding import Binding, Handler, bind
from rqretry.consumer.options import ConsumerOptions
from rqretry.consumer.registry import Registry
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.core.limits import check_name, check_options, check_topic
from rqretry.core.schedule import MAX_NAME, ScheduleRecord, Timetable, check_catch_up
from rqretry.core.typed_body import BodyMismatch, plain

F = TypeVar("F", bound=Callable[..., Any])

_MAX_BODY = 16 * 1024
_CANNOT_SKIP = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ScheduleOptions(ConsumerOptions, total=False):
    """The options of `@app.cron`, beside those of its handler.

    Attributes:
        every: Publish at this interval, whole seconds, in place of a cron line.
        timezone: Where the cron line is read, such as "Europe/Berlin"; default UTC.
        name: Its name, and that of its topic and group; default the function's name.
        body: What each message holds, a JSON value up to 16 KiB; default None.
        catch_up: After an outage publish the "last" missed slot (the default), "all" (the newest
            100), or "none". A slot that is at most a minute late is published in any case.
    """

    every: Duration
    timezone: str
    name: str
    body: Any
    catch_up: Literal["last", "all", "none"]


class PeriodicHandlers:
    """The decorator `cron` of an app, and what it registered."""

    def __init__(self) -> None:
        self.declared: dict[str, int | None] = {}
        self.schedules: list[ScheduleRecord] = []
        self._registry = Registry()
        self._workers = 0

    def cron(
        self, line: str | None = None, /, **options: Unpack[ScheduleOptions]
    ) -> Callable[[F], F]:
        """Call a function at certain times: by a cron line, or with `every="10m"`.

        Each slot is one message, published once whoever is up, and retried like any other. The
        function stays an ordinary one. It takes nothing, the Message (whose `scheduled_for` is the
        slot), its body, or both.

        Args:
            line: Minute, hour, day of month, month and day of week, such as "0 3 * * *".
            options: See ScheduleOptions and rqretry.ConsumerOptions.

        Raises:
            InvalidArgument: The line, or an option, means nothing.
            ConfigError: The function takes what it cannot get, the name is taken, rqretry[cron] is
                not installed, or a worker of this app runs already.
        """
        if callable(line):
            raise InvalidArgument(
                '@app.cron needs a time: write @app.cron("0 3 * * *") or @app.cron(every="10m")'
            )

        def decorate(function: F) -> F:
            self._refuse_late("schedule")
            own = {name: options.get(name) for name in _OWN}
            rest = {name: value for name, value in options.items() if name not in _OWN}
            check_options(options, ScheduleOptions, "schedule option")
            record = _schedule(function, line, own)
            binding = _binding(function, record)
            if any(record.name == other.name for other in self.schedules):
                raise ConfigError(
                    f"there is a schedule {show(record.name)} already: give one of them name=..."
                )
            given: ConsumerOptions = rest  # type: ignore[assignment]
            self._registry.add(function, record.name, record.name, given, binding=binding)
            self.declared.setdefault(record.name, None)
            self.schedules.append(record)
            return function

        return decorate

    def _refuse_late(self, what: str) -> None:
        if self._workers:
            raise ConfigError(
                f"the {what} is registered while a worker of this app runs, which would never serve"
                " it: register it before, as where the module is imported"
            )


_OWN = tuple(ScheduleOptions.__annotations__.keys() - ConsumerOptions.__annotations__.keys())


def _schedule(function: Handler, line: object, own: Mapping[str, Any]) -> ScheduleRecord:
    given = own["name"]
    name = check_topic(getattr(function, "__name__", "") if given is None else given)
    catch_up = own["catch_up"]
    try:
        text = json.dumps(plain(own["body"]), allow_nan=False)
    except (TypeError, ValueError) as error:
        refuse("body", own["body"], f"must be a JSON value: {error}")
    if len(text) > _MAX_BODY:
        raise InvalidArgument(
            "body: a schedule's may take 16 KiB: store what is larger elsewhere, and name it there"
        )
    return ScheduleRecord(
        check_name("schedule", name, MAX_NAME),
        Timetable.parse(line, own["every"], own["timezone"]),
        check_catch_up("last" if catch_up is None else catch_up),
        json.loads(text),
    )


def _binding(function: Handler, record: ScheduleRecord) -> Binding:
    """How the handler is called; one without parameters needs nothing of the message."""
    parameters = inspect.signature(function).parameters.values()
    if all(p.default is not p.empty or p.kind in _CANNOT_SKIP for p in parameters):
        return Binding("", None)
    binding = bind(function)
    try:
        if binding.fit is not None:
            binding.fit(record.body)
    except BodyMismatch as error:
        raise ConfigError(
            f"handler {show(function)} does not take the body of schedule {show(record.name)},"
            f" {show(record.body)} ({error}): give body=..., or take the Message"
        ) from error
    return binding
