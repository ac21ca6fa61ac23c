"""rqretry pipeline simulate: archived outcomes under other retry policies, on Spark."""

from dataclasses import asdict
from itertools import groupby
from typing import Any

import click

from rqretry.cli.options import (
    Whole,
    duration,
    json_option,
    period_options,
    server_options,
    spark_options,
    whole_or,
)
from rqretry.cli.output import clean, note, print_json, print_table
from rqretry.core.durations import spell
from rqretry.core.retry_policy import RetryPolicy
from rqretry.spark.sessions import session_for
from rqretry.spark.simulate_job import OBSERVED, SIMULATIONS, SimulationSummary
from rqretry.spark.simulate_job import simulate as run

_COLUMNS = ("policy", "#retries", "scenario", "#committed", "#dead", "#unfinished", "#not known")
_LOAD = ("#deliveries", "#handler s", "#peak", "p50 to success", "p95")
_TIMES = ("to_success_p50", "to_success_p95")


@click.command(
    epilog="Example: rqretry pipeline simulate --from ./history --policy 'ladder:1m 10m 1h'"
)
@click.option("--from", "archive", metavar="FOLDER", required=True, help="The archive to read.")
@click.option(
    "--policy",
    "policies",
    metavar="P",
    multiple=True,
    required=True,
    help='rocketmq, "ladder:10s 30s 1m", fixed:1s or exponential:5s,2,2h; can be repeated.',
)
@click.option(
    "--max-retries",
    metavar="N",
    callback=whole_or("unlimited"),
    help='Retries of each policy; a number or "unlimited"; default 16.',
)
@click.option("--topic", "topics", default="*", help='A topic, or several as "a,b"; default all.')
@click.option("--group", metavar="G", help="One group; default all.")
@click.option(
    "--delay-levels", metavar="TABLE", help='The level table of rocketmq, such as "1s 5s 10s".'
)
@click.option(
    "--window", default="1m", callback=duration(0.001), help="Window of the peak; default 1m."
)
@period_options
@click.option(
    "--simulations",
    type=Whole(min=1),
    metavar="N",
    default=SIMULATIONS,
    show_default=True,
    help="How many times each message is played.",
)
@click.option("--back-test", is_flag=True, help="Also show how often intervals hold.")
@spark_options
@json_option
@server_options
def simulate(*, archive: str, window: float, as_json: bool, **given: Any) -> None:
    """Replay an archive through other retry policies; compare.

    Committed and dead messages, deliveries, time to success and load: as observed, and for each
    policy what is likely, with 90 % intervals (low, high). Why deliveries fail is estimated from
    the archive; --back-test shows how often such intervals hold. No server is needed.
    """
    for policy in given["policies"]:
        RetryPolicy.parse(policy)
    with session_for("rqretry simulate", given.pop("master"), given.pop("config")) as spark:
        summary = run(spark, archive, window=window, **given)
    if as_json:
        print_json({"archive": archive, "window_seconds": window} | asdict(summary))
    else:
        _print(summary, window)


def _print(summary: SimulationSummary, window: float) -> None:
    for when, rows in (("", summary.rows), (" in the time before", summary.before)):
        for (topic, group), listed in groupby(rows, lambda row: (row["topic"], row["group"])):
            first, *others = listed
            click.echo(clean(f"{topic} / {group}{when}: {first['messages']} messages"))
            print_table([*_COLUMNS, *_LOAD], [_cells(row) for row in (first, *others)])
    if summary.back_test:
        names = ("figure", "model", "naive", "intervals")
        tested = [tuple(_share(row[name]) for name in names) for row in summary.back_test]
        print_table([names[0], *(f"#{name}" for name in names[1:])], tested)
    note(
        f"peak: the most deliveries begun in {spell(window)}; {summary.left_out} messages left out"
    )
    for sentence in summary.assumptions:
        note(sentence)


def _share(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.0%}"
    return "-" if value is None else value


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    mine = row["scenario"] == OBSERVED
    chosen = ("policy", "max_retries", "not_known")
    policy, retries, unknown = ("-" if mine else row[name] for name in chosen)
    return (
        policy, retries, row["scenario"], row["committed"], row["dead"], row["unfinished"], unknown,
        row["deliveries"], _seconds(row["handler_seconds"]), row["peak"],
        *("-" if row[part] is None else spell(row[part]) for part in _TIMES),
    )  # fmt: skip
