"""Write docs/reference/settings.md and metrics.md from the code: run it after changing either.

    python tools/make_reference.py

A test fails while a page is stale, or while the code has something that the tables below miss.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import rqretry.cli.metrics as exporter
import rqretry.gateway.metrics as gateway_port
import rqretry.supervision.metrics_port as worker_port
from rqretry import App, GroupStats, Stats, TopicStats, Waiting
from rqretry.core.redis_url import OPTIONS
from rqretry.core.settings import VARIABLES
from rqretry.gateway.codes import OK
from rqretry.observability.counters import BUCKETS_S, WAIT_BUCKETS_S, Figures
from rqretry.otel.meters import Meters

PLACE = Path(__file__).resolve().parents[1] / "docs" / "reference"
ARGUMENT = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""An entry of an `Args` section."""
NAMED = {
    "RQRETRY_REDIS_URL": ("`--url`", "`url`", "`redis://localhost:6379/0`"),
    "RQRETRY_NAMESPACE": ("`--namespace`", "`namespace`", "`default`"),
    "RQRETRY_DELAY_LEVELS": ("", "`delay_levels`", "the namespace's own, at first RocketMQ's 18"),
    "RQRETRY_DASHBOARD_TOKEN": ("`rqretry dashboard --token-file`", "", "no password"),
    "RQRETRY_TRACE_URL": ("`--trace-url`", "", "traces are not linked"),
}
"""Where each variable can be named too: an option, an argument of `App`; and what it is else."""
URL_MEANINGS = {
    "socket_timeout": "how long to wait for a reply",
    "socket_connect_timeout": "how long to wait for a connection",
    "client_name": "what `CLIENT LIST` shows",
    "db": "the database, in place of the path",
    "sentinel_username": "the user of the Sentinels",
    "sentinel_password": "the password of the Sentinels",
    "ssl_ca_certs": "the authorities that are trusted",
    "ssl_certfile": "the certificate of this client",
    "ssl_keyfile": "the key of that certificate",
    "ssl_check_hostname": "whether the certificate must name the host; default true",
}


URL_HEAD = ("option", "meaning", "value")
WRITTEN = "<!-- Written by tools/make_reference.py: change the code, then run it. -->"
SETTINGS = f"""# Settings

{WRITTEN}

What names a setting wins in this order: the option of the command, the argument in the code, the
variable, the default. The banner of a worker says which of them named the server.

## Variables of the environment

{{variables}}

A variable that begins with `RQRETRY_` and is none of these is named in a warning, or refused if it
is nearly one. Traces are set up by the variables of OpenTelemetry ([Tracing](../tracing.md)).

## Arguments of App

{{app}}

Options of [consumers and tasks](python.md), of [publishes and transactions](clients.md) and of
[commands](../cli.md) are on pages of their own.

## The URL of the server

| kind | URL |
| --- | --- |
| one server | `redis://[user:password@]host[:port][/db]` |
| with TLS | `rediss://...`, also in the kinds below |
| a socket | `unix:///path` |
| Sentinels | `redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]` |
| a cluster | `redis+cluster://[user:password@]host[:port],host[:port]` |

Options follow a `?`, as in `redis://localhost:6379/0?socket_timeout=2`. A reserved character in a
password is percent-encoded.

{{url}}
"""
METRICS = f"""# Metrics

{WRITTEN}

How to collect them is in [Deployment](../deployment.md); alerts and a Grafana dashboard are in
`deploy/`, and every alert names its [runbook](../operations.md).

## rqretry exporter

The state of a namespace, whoever works on it.

{{exporter}}

## rqretry worker --metrics-port

What the processes of one worker did.

{{worker}}

## rqretry gateway

On the port that clients use: `GET /metrics`. With `--processes` the one that accepts it answers,
for itself.

{{gateway}}

## OpenTelemetry

With `rqretry[otel]`, by the messaging conventions.

{{otel}}
"""


def settings() -> str:
    """The page about settings."""
    if NAMED.keys() != set(VARIABLES) or URL_MEANINGS.keys() != OPTIONS.keys():
        raise SystemExit("tools/make_reference.py: describe the new setting in its tables")
    head = ("variable", "option", "`App(...)`, `Client(...)`", "default")
    variables = table(head, ((f"`{name}`", *NAMED[name]) for name in VARIABLES))
    app = table(("argument", "default", "meaning"), arguments(App))
    return SETTINGS.format(variables=variables, app=app, url=table(URL_HEAD, url_options()))


def url_options() -> Iterator[Sequence[str]]:
    """Name, meaning and value of each option of the URL."""
    for name, rule in OPTIONS.items():
        secret = rule.must.startswith("is empty")
        value = "any text" if secret else rule.must.removeprefix("must be ")
        yield f"`{name}`", URL_MEANINGS[name], value


def arguments(owner: type) -> Iterator[Sequence[str]]:
    """Name, default and meaning of each argument, from its signature and its docstring."""
    section = inspect.getdoc(owner) or ""
    section = section.partition("Args:\n")[2].partition("\n\n")[0]
    described = {name: " ".join(text.split()) for name, text in ARGUMENT.findall(section)}
    given = inspect.signature(owner).parameters
    if described.keys() != given.keys():
        raise SystemExit(f"the docstring of {owner.__name__} does not have its arguments")
    for name, parameter in given.items():
        yield f"`{name}`", f"`{parameter.default!r}`", described[name]


def metrics() -> str:
    """The page about metrics."""
    return METRICS.format(
        exporter=exposed(exporter.render(a_namespace(), evicts=False)),
        worker=exposed(worker_port.render(a_board())),
        gateway=exposed(gateway_port.render(a_gateway(), polls=1, clients=1, leases=1, ready=True)),
        otel=table(("metric", "unit", "meaning"), instruments()),
    )


def exposed(text: str) -> str:
    """Rows for what Prometheus reads, taken from such a text with one sample of everything."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    rows = []
    for name, meaning in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        samples = re.findall(rf"^{name}(?:_bucket)?\{{(.*)\}} ", text, re.MULTILINE)
        labels = re.findall(r"(\w+)=\"", samples[0]) if samples else []
        rows.append((f"`{name}`", kinds[name], ", ".join(f"`{x}`" for x in labels), meaning))
    return table(("metric", "type", "labels", "meaning"), rows)


def a_gateway() -> gateway_port.Counted:
    """One call."""
    return gateway_port.Counted(Counter({("SendMessage", OK.code): 1}))


def a_namespace() -> Stats:
    """One of everything."""
    group = GroupStats(
        "billing", "push", 1, 0, 0, (Waiting(1, 1, 0),), 0, None,
        paused=False, workers=1, ordered=True, oldest_ages_s={"ready": 1.0},
        busy=1, slots=8, done_per_s=1.0,
    )  # fmt: skip
    topic = TopicStats("orders", 1, 1, 0, 0, (group,), max_messages=1, bytes=1)
    return Stats("default", (topic,), used_memory=1, max_memory=1)


def a_board() -> Any:
    """A supervisor's, after one attempt."""
    place: tuple[str, ...] = ("orders", "billing")
    waited = {place: [0.0] * (len(WAIT_BUCKETS_S) + 2)}
    figures = Figures(
        {(*place, "success"): 1}, {("orders", "ok"): 1}, {place: [0.0] * (len(BUCKETS_S) + 2)},
        {("exported",): 1}, {(*place, "KeyError"): 1}, waited, waited,
    )  # fmt: skip
    return SimpleNamespace(
        figures=lambda: figures, states=lambda: {"working": 1}, ready=lambda: (True,),
        live=lambda: (True,), slots=lambda: {"billing": (1, 8)},
    )  # fmt: skip


def instruments() -> list[Sequence[str]]:
    """What is given to OpenTelemetry's meter."""
    rows: list[Sequence[str]] = []

    def create(name: str, unit: str, text: str, **_: Any) -> None:
        rows.append((f"`{name}`", f"`{unit}`", text))

    meter: Any = SimpleNamespace(create_counter=create, create_histogram=create)
    Meters(meter)
    return rows


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ("---",) * len(head), *([c.replace("|", "\\|") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


PAGES = {"settings.md": settings, "metrics.md": metrics}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (PLACE / name).write_text(page(), encoding="utf-8")
