"""rqretry worker: run the handlers of an app in processes; rqretry dev: the same, to try it."""

import re
import sys
from contextlib import ExitStack, nullcontext
from functools import partial
from shlex import quote
from typing import Any

import click

from rqretry.app import App
from rqretry.checks.server_checks import examine_before_work
from rqretry.cli.banner import announce, print_banner
from rqretry.cli.dev_home import home_of
from rqretry.cli.options import (
    Target,
    Whole,
    app_dir_option,
    duration,
    port_option,
    read_host,
    reader,
    server_command,
    target_of,
    url_of,
)
from rqretry.cli.trace_option import traced_workers, worker_trace_options
from rqretry.consumer.registry import MAX_CONCURRENCY
from rqretry.core.errors import show
from rqretry.core.parts import parts_of
from rqretry.core.settings import URL_VARIABLE, named_by
from rqretry.observability.log_format import (
    FORMATS,
    LEVELS,
    LogSettings,
    default_format,
    set_up_logging,
)
from rqretry.supervision.app_loader import load_app, load_worker_app, require_consumers
from rqretry.supervision.reload import require_watchfiles
from rqretry.supervision.supervisor import HEALTH_HOST, Ports, supervise
from rqretry.supervision.worker_process import WorkerConfig
from rqretry.testing.embedded_redis import EmbeddedRedis
from rqretry.worker.stop_signals import Stoppable, StoppedEarly

MAX_PROCESSES = 256
_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)I?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SMALLEST = 1024**2
_PRIVATE = "server   {}, private: it forgets everything at the end"
_LIMITS = ("concurrency", "grace", "max_messages", "max_memory", "tracing")
DEV_GRACE_S = 5.0
"""Short: whoever changes the code wants to see the change."""


@reader
def read_size(name: str, text: str) -> int:
    """Bytes, or text such as 512M or 2G, as bytes; at least 1 MiB."""
    found = _SIZE.fullmatch(text)
    size = int(found[1]) * _UNITS[found[2].upper()] if found else 0
    if size < _SMALLEST:
        rule = "must be a size of at least 1M, such as 512M or 2G"
        raise click.UsageError(f"{name} {show(text)} {rule}")
    return size


@click.command(epilog="Example: rqretry worker shop.billing:app --processes 2")
@click.argument("target", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=Whole(1, MAX_PROCESSES),
    default=1,
    show_default=True,
    help="Worker processes.",
)
@click.option(
    "--concurrency",
    type=Whole(1, MAX_CONCURRENCY),
    metavar="N",
    help="Concurrent attempts per handler and process; default: each handler's own.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    default="25s",
    show_default=True,
    callback=duration(),
    help="How long running handlers may continue after SIGTERM.",
)
@app_dir_option
@click.option(
    "--redis",
    type=click.Choice(["embedded"]),
    help="Start a private Redis that ends with the worker.",
)
@click.option(
    "--max-messages",
    type=Whole(min=1),
    metavar="N",
    help="Replace a process when it has finished so many messages.",
)
@click.option(
    "--max-memory",
    metavar="SIZE",
    callback=read_size,
    help="Replace a process when it uses more memory than this, such as 512M.",
)
@click.option(
    "--reload", is_flag=True, help="Restart when code below DIR changes (rqretry[reload])."
)
@port_option("--health-port", "Answer /livez and /readyz on this port; default: no port.")
@port_option("--metrics-port", "Answer /metrics for Prometheus on this port; default: no port.")
@click.option(
    "--health-host",
    metavar="HOST",
    callback=read_host,
    help=f"The address that these two ports listen on; default {HEALTH_HOST}.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    help="Default: text on a terminal, json elsewhere.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="The least severe level that is logged.",
)
@click.option("--strict", is_flag=True, help="Refuse to start on a warning of doctor, too.")
@worker_trace_options
@server_command
def worker(context: click.Context, /, target: str, **given: Any) -> int:
    """Run the handlers of APP, a variable of MODULE, in processes.

    SIGTERM or Ctrl-C stops leasing, releases what has not started, and gives running handlers the
    grace period to finish; a second signal stops at once. SIGHUP replaces the processes one after
    another.
    """
    if given["redis"] and target_of(context).url is not None:
        raise click.UsageError("--redis embedded cannot be given with --url: keep one")
    if given["health_host"] and given["health_port"] is None is given["metrics_port"]:
        raise click.UsageError("--health-host does nothing without --health-port: give both")
    given["health_host"] = given["health_host"] or HEALTH_HOST
    if given["reload"]:
        require_watchfiles()
    for_people = given["reload"] or sys.stderr.isatty()
    log_format = given["log_format"] or default_format(sys.stderr)
    logs = LogSettings(log_format, given["log_level"], tracebacks=for_people)
    set_up_logging(logs)
    tracing = traced_workers(given, target.partition(":")[0])
    try:
        with Stoppable() as early:
            return _run(target, target_of(context), given | {"tracing": tracing}, logs, early)
    except StoppedEarly:
        return 0


def _run(
    target: str, where: Target, given: dict[str, Any], logs: LogSettings, early: Stoppable
) -> int:
    """Load, check, print the banner and run; the exit status."""
    where.settings()
    app = load_app(target, given["app_dir"])
    require_consumers(app, target, given["app_dir"])
    with EmbeddedRedis() if given["redis"] else nullcontext() as server:
        url = where.url if server is None else server.url
        named = named_by(url, parts_of(app).clients.given[0])
        app.configure(url, where.namespace)
        as_json = logs.format == "json"
        _start(app, named, embedded=given["redis"] is not None, given=given, as_json=as_json)
        if server is not None:
            announce([_PRIVATE.format(server)], as_json=as_json)
            sys.stdout.flush()
        early.check()
        config = WorkerConfig(
            partial(load_worker_app, target, given["app_dir"], url, where.namespace),
            logs=logs,
            service=target.partition(":")[0],
            **{name: given[name] for name in _LIMITS},
        )
        ports = Ports(given["health_host"], given["health_port"], given["metrics_port"])
        watched = given["app_dir"] if given["reload"] else None
        return supervise(config, given["processes"], ports, watched=watched)


def _start(app: App, named: str, *, embedded: bool, given: dict[str, Any], as_json: bool) -> None:
    """Say what the worker will do. Raises UnsafeServer if it must not start."""
    client = app.client
    findings = examine_before_work(
        parts_of(client).store,
        parts_of(app).settings.namespace,
        strict=given["strict"],
        embedded=embedded,
    )
    print_banner(
        app,
        findings or [],
        named,
        reached=findings is not None,
        processes=given["processes"],
        concurrency=given["concurrency"],
        as_json=as_json,
    )
    host, lines = given["health_host"], []
    if given["health_port"] is not None:
        lines.append(f"health   {url_of(host, given['health_port'], '/livez')} and /readyz")
    if given["metrics_port"] is not None:
        lines.append(f"metrics  {url_of(host, given['metrics_port'], '/metrics')}")
    announce(lines, as_json=as_json)
    sys.stdout.flush()
    client.close()


@click.command(epilog="Example: rqretry dev shop.billing:app")
@click.argument("target", metavar="MODULE:APP")
@app_dir_option
@server_command
def dev(context: click.Context, /, target: str, app_dir: str) -> int:
    """Run APP with a Redis of its own; restart when code changes.

    The Redis is private and forgets everything at the end; with --url that server is used instead.
    Its URL is the same at every start for the same DIR: a web app beside it gets it as
    RQRETRY_REDIS_URL. For development: use rqretry worker elsewhere.
    """
    where = target_of(context)
    where.settings()
    require_watchfiles()
    try:
        with ExitStack() as stack, Stoppable():
            if where.url is None:
                server = stack.enter_context(EmbeddedRedis(home=home_of(app_dir)))
                where.url = server.url
                space = f" --namespace {quote(where.namespace)}" if where.namespace else ""
                lines = [
                    f"publish  rqretry publish TOPIC --body JSON --url {quote(where.url)}{space}",
                    f"web app  export {URL_VARIABLE}={quote(where.url)}",
                    _PRIVATE.format(server),
                ]
                announce(lines, as_json=default_format(sys.stderr) == "json")
                sys.stdout.flush()
            status: int = context.invoke(
                worker, target=target, app_dir=app_dir, reload=True, grace=DEV_GRACE_S
            )
            return status
    except StoppedEarly:
        return 0
