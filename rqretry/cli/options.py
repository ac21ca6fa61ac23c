"""Options that commands share, and the reading of their values."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from rqretry.core.durations import seconds
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.settings import Settings

Reader = Callable[[click.Context, click.Parameter, str | None], Any]
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_MASTER = re.compile(
    r"local|local\[(\*|[1-9]\d*)(, *[1-9]\d*)?\]|local-cluster\[[\d, ]+\]|yarn|(spark|k8s)://\S+"
)

F = TypeVar("F", bound=Callable[..., Any])


def duration(minimum: float = 0.0, maximum: float | None = None) -> Reader:
    """Reads seconds, or text such as "10s" or "1m30s", as seconds; both limits are seconds."""

    def read(_context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
        if text is None:
            return None
        return seconds(text, name=parameter.opts[0], minimum=minimum, maximum=maximum)

    return read


def read_when(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> datetime | float | None:
    """A date with a time zone as a datetime, or how long ago ("2h") as minus that many seconds."""
    if text is None:
        return None
    name = parameter.opts[0]
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return -seconds(text, name=name)
    return _zoned(name, text, date)


def read_date(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> datetime | None:
    """A date with a time zone, ISO 8601."""
    if text is None:
        return None
    name = parameter.opts[0]
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{name} {show(text)} is not a date: write it as 2026-11-21T12:00:00Z"
        ) from None
    return _zoned(name, text, date)


def read_host(_context: click.Context, parameter: click.Parameter, host: str | None) -> str | None:
    """An address to listen on; an empty one would mean every address of the machine."""
    if host == "":
        raise click.UsageError(f"{parameter.opts[0]} is empty: name an address, such as 127.0.0.1")
    return host


def _zoned(name: str, text: str, date: datetime) -> datetime:
    if date.tzinfo is None:
        raise click.UsageError(f"{name} {show(text)} has no time zone: write {show(f'{text}Z')}")
    return date


def whole_or(name: str) -> Reader:
    """Reads a whole number, or this name; its limits are checked where it is used."""

    def read(
        _context: click.Context, parameter: click.Parameter, text: str | None
    ) -> int | str | None:
        if text is None or text == name:
            return text
        if not _WHOLE.fullmatch(text):
            reason = f'must be a whole number, or "{name}"'
            raise click.UsageError(f"{parameter.opts[0]} {show(text)} {reason}")
        return int(text)

    return read


@dataclass(slots=True)
class Target:
    """The values of --url and --namespace, given before the subcommand or after it (which wins)."""

    url: str | None = None
    namespace: str | None = None

    def settings(self) -> Settings:
        """Checked, with defaults from the environment. Wrong values are wrong usage."""
        try:
            return Settings.read(self.url, self.namespace)
        except (ConfigError, InvalidArgument) as error:
            raise click.UsageError(str(error)) from error


def target_of(context: click.Context) -> Target:
    """The one target of this invocation."""
    return context.find_root().ensure_object(Target)


def _remember(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None and parameter.name:
        setattr(target_of(context), parameter.name, value)


def server_options(command: F) -> F:
    """--url and --namespace; see `session.connected`."""
    url = click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help="The Redis server; default RQRETRY_REDIS_URL, else redis://localhost:6379/0.",
    )
    namespace = click.option(
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        help='The namespace; default RQRETRY_NAMESPACE, else "default".',
    )
    return url(namespace(command))


def json_option(command: F) -> F:
    """--json: one JSON object on standard output, nothing else there."""
    return click.option("as_json", "--json", is_flag=True, help="Print one JSON object.")(command)


def host_option(command: F) -> F:
    """--host: where a server listens."""
    return click.option(
        "--host",
        metavar="HOST",
        default="127.0.0.1",
        show_default=True,
        callback=read_host,
        help="Where it listens.",
    )(command)


def _read_master(
    _context: click.Context, parameter: click.Parameter, master: str | None
) -> str | None:
    """What Spark takes; it would answer anything else with a Java stack trace."""
    if master is not None and not _MASTER.fullmatch(master):
        raise click.UsageError(
            f"{parameter.opts[0]} {show(master)} is not a Spark master: write local[*],"
            " local[4], spark://host:7077, yarn or k8s://https://host"
        )
    return master


def master_option(command: F) -> F:
    """--master: where Spark runs."""
    return click.option(
        "--master",
        metavar="URL",
        callback=_read_master,
        help='Where Spark runs, such as spark://host:7077; default "local[*]".',
    )(command)


def read_headers(
    _context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """NAME=VALUE pairs as a dict."""
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{parameter.opts[0]} {show(pair)} must be NAME=VALUE")
        if name in headers:
            raise click.UsageError(f"{parameter.opts[0]} gives {show(name)} twice: keep one")
        headers[name] = value
    return headers
