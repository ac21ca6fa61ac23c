"""What `@app.cron` registers: a handler, and the schedule whose messages it gets."""

import inspect
import json
from collections.abc import Mapping
from typing import Any, Literal

from rqretry.consumer.declared import Declared
from rqretry.consumer.handler_binding import Binding, Handler, bind
from rqretry.consumer.options import ConsumerOptions
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, InvalidArgument, refuse, show
from rqretry.core.limits import check_function, check_options, check_topic
from rqretry.core.schedule import ScheduleRecord, Timetable, check_catch_up, check_schedule
from rqretry.core.typed_body import BodyMismatch, plain

_MAX_BODY = 16 * 1024
_CANNOT_SKIP = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class ScheduleOptions(ConsumerOptions, total=False):
    """The options of `@app.cron`, beside those of its handler.

    Attributes:
        every: Publish at this interval, whole seconds, in place of a cron line; default none.
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


_OWN = tuple(ScheduleOptions.__annotations__.keys() - ConsumerOptions.__annotations__.keys())


def add_schedule(
    declared: Declared, function: Handler, line: object, options: ScheduleOptions
) -> None:
    """Keep a schedule and the handler of its messages. Raises InvalidArgument, ConfigError."""
    own = {name: options.get(name) for name in _OWN}
    rest = {name: value for name, value in options.items() if name not in _OWN}
    check_options(options, ScheduleOptions, "schedule option")
    check_function("handler", function)
    record = _schedule(function, line, own)
    binding = _binding(function, record)
    if any(record.name == other.name for other in declared.schedules):
        raise ConfigError(
            f"there is a schedule {show(record.name)} already: give one of them name=..."
        )
    given: ConsumerOptions = rest  # type: ignore[assignment]
    declared.registry.add(function, record.name, record.name, given, binding=binding)
    declared.topics.setdefault(record.name, None)
    declared.schedules.append(record)


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
        check_schedule(name),
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
