"""Options that commands share, and the reading of their values."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import click

from rqretry.core.durations import seconds
from rqretry.core.errors import ConfigError, InvalidArgument, show
from rqretry.core.settings import TRACE_URL_VARIABLE, Settings
from rqretry.core.start import EARLIEST, LATEST

Reader = Callable[[click.Context, click.Parameter, str | None], Any]
_WHOLE = re.compile(r"-?[0-9]{1,13}")
_AMOUNT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")
_MASTER = re.compile(
    r"local|local\[(\*|[1-9]\d*)(, *[1-9]\d*)?\]|local-cluster\[[\d, ]+\]|yarn|(spark|k8s)://\S+",
    re.ASCII,
)

F = TypeVar("F", bound=Callable[..., Any])


class Whole(click.IntRange):
    """A whole number: int() would also take other digits than 0-9, blanks and underscores."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Wrong usage if it is none, or outside the limits."""
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            self.fail(f"{show(value)} is not a whole number", param, ctx)
        return super().convert(value, param, ctx)


class Amount(click.types.FloatParamType):
    """An amount such as 12.50: float() would also take other digits than 0-9, "1e3" and "nan"."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Wrong usage if it is none."""
        if isinstance(value, str) and not _AMOUNT.fullmatch(value):
            self.fail(f"{show(value)} is not an amount such as 12.50", param, ctx)
        return super().convert(value, param, ctx)


def grouped(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator; their order is that of the help."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def reader(read: Callable[[str, str], Any]) -> Reader:
    """Reads the text of an option, if it is given: `read` gets the option's name and the text."""

    def callback(_context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        return None if text is None else read(parameter.opts[0], text)

    return callback


def duration(minimum: float = 0.0, maximum: float | None = None) -> Reader:
    """Reads seconds, or text such as "10s" or "1m30s", as seconds; both limits are seconds."""
    return reader(lambda name, text: seconds(text, name=name, minimum=minimum, maximum=maximum))


@reader
def read_when(name: str, text: str) -> datetime | float:
    """A date with a time zone as a datetime, or how long ago ("2h") as minus that many seconds."""
    return _date(name, text) or -seconds(text, name=name)


@reader
def read_start(name: str, text: str) -> str | datetime | float:
    """Where a group begins: "latest", "earliest", or a time as `read_when` takes it."""
    if text in (LATEST, EARLIEST):
        return text
    try:
        return _date(name, text) or -seconds(text, name=name)
    except InvalidArgument:
        rule = (
            f"is not {LATEST}, {EARLIEST}, a date or how long ago: write 2026-11-21T12:00:00Z or 2h"
        )
        raise click.UsageError(f"{name} {show(text)} {rule}") from None


@reader
def read_date(name: str, text: str) -> datetime:
    """A date with a time zone, ISO 8601."""
    date = _date(name, text)
    if date is None:
        reason = "is not a date: write it as 2026-11-21T12:00:00Z"
        raise click.UsageError(f"{name} {show(text)} {reason}")
    return date


def _date(name: str, text: str) -> datetime | None:
    """None if it is no date."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        raise click.UsageError(f"{name} {show(text)} has no time zone: write {show(f'{text}Z')}")
    return date


def url_of(host: str, port: int, path: str) -> str:
    """An address of this program; IPv6 hosts are in brackets."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


@reader
def read_host(name: str, host: str) -> str:
    """An address to listen on; an empty one would mean every address of the machine."""
    if not host:
        raise click.UsageError(f"{name} is empty: name an address, such as 127.0.0.1")
    return host


def whole_or(literal: str) -> Reader:
    """Reads a whole number, or this literal text; its limits are checked where it is used."""

    @reader
    def read(name: str, text: str) -> int | str:
        if text == literal:
            return text
        if not _WHOLE.fullmatch(text):
            reason = f'must be a whole number, or "{literal}"'
            raise click.UsageError(f"{name} {show(text)} {reason}")
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


server_options = grouped(
    click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_remember,
        help="The Redis server; default what the app names, else RQRETRY_REDIS_URL, else"
        " redis://localhost:6379/0.",
    ),
    click.option(
        "--namespace",
        metavar="NAME",
        expose_value=False,
        callback=_remember,
        help='The namespace; default what the app names, else RQRETRY_NAMESPACE, else "default".',
    ),
)
"""--url and --namespace; see `session.connected`."""
server_command = grouped(server_options, click.pass_context)
"""The same, and the command gets the context."""
json_option = click.option("as_json", "--json", is_flag=True, help="Print one JSON object.")
"""--json: one JSON object on standard output, nothing else there."""
json_command = grouped(json_option, server_command)
"""--json, --url and --namespace, and the command gets the context."""
host_option = click.option(
    "--host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    callback=read_host,
    help="Where it listens.",
)
"""--host: where a server listens."""
app_dir_option = click.option(
    "--app-dir", metavar="DIR", default=".", show_default=True, help="Where MODULE is."
)
trace_url_option = click.option(
    "--trace-url",
    metavar="URL",
    envvar=TRACE_URL_VARIABLE,
    help="Where a trace is shown, such as http://localhost:16686/trace/{trace_id}.",
)


def port_option(name: str, text: str, default: int | None = None) -> Callable[[F], F]:
    """A TCP port to listen on."""
    port = Whole(1, 65535)
    shown = default is not None
    return click.option(
        name, type=port, metavar="PORT", default=default, show_default=shown, help=text
    )


@reader
def _read_master(name: str, master: str) -> str:
    """What Spark takes; it would answer anything else with a Java stack trace."""
    if not _MASTER.fullmatch(master):
        raise click.UsageError(
            f"{name} {show(master)} is not a Spark master: write local[*],"
            " local[4], spark://host:7077, yarn or k8s://https://host"
        )
    return master


def read_pairs(
    _context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    """NAME=VALUE pairs as a dict."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{parameter.opts[0]} {show(pair)} must be NAME=VALUE")
        if name in found:
            raise click.UsageError(f"{parameter.opts[0]} gives {show(name)} twice: keep one")
        found[name] = value
    return found


spark_options = grouped(
    click.option(
        "--master",
        metavar="URL",
        callback=_read_master,
        help='Where Spark runs, such as spark://host:7077; default "local[*]".',
    ),
    click.option(
        "--conf",
        "config",
        metavar="NAME=VALUE",
        multiple=True,
        callback=read_pairs,
        help="A setting of Spark; can be repeated.",
    ),
)
"""--master and --conf: where Spark runs, and its settings."""


def _both(context: click.Context, _parameter: click.Parameter, compare: bool) -> bool:  # noqa: FBT001 - click
    if compare and None in (context.params.get("since"), context.params.get("until")):
        raise click.UsageError("--compare needs a time to compare: give --since and --until")
    return compare


period_options = grouped(
    click.option(
        "--since",
        metavar="DATE",
        callback=read_date,
        is_eager=True,
        help="Only events from a date on.",
    ),
    click.option(
        "--until",
        metavar="DATE",
        callback=read_date,
        is_eager=True,
        help="Only events before a date.",
    ),
    click.option(
        "--compare",
        is_flag=True,
        callback=_both,
        help="Also show as long a time before --since.",
    ),
)
"""--since, --until and --compare: which events of an archive."""
