"""rqretry reaper: maintenance of the namespace while no worker runs."""

import time
from contextlib import suppress

import click

from rqretry.admin.series import SeriesWriter
from rqretry.cli.options import json_command
from rqretry.cli.output import fields_of, note, print_json
from rqretry.cli.session import connected
from rqretry.cli.trace_option import otlp_option
from rqretry.client import Client
from rqretry.core.errors import AmbiguousResult, StoreUnavailable
from rqretry.core.parts import parts_of
from rqretry.maintenance.upkeep import Round, Upkeep
from rqretry.worker.stop_signals import Stoppable, StoppedEarly

LOOK_EVERY_S = 1.0
"""Due times are met to the millisecond; deadlines of leases, and what is new, within this."""
_SHORTEST_S = 0.005
_AGAIN_S = 0.5


@click.command(epilog="Example: rqretry reaper --once --json")
@click.option("--once", is_flag=True, help="Do what is due now, and end.")
@otlp_option
@json_command
def reaper(context: click.Context, *, once: bool, as_json: bool) -> None:
    """Expire, promote and deliver what is due, until stopped.

    It does so for all groups, until a signal stops it. Workers do this for their own groups; it is
    for groups whose workers are all away, or that are served with receive only. Any number of
    reapers may run beside each other.
    """
    with connected(context) as client:
        namespace = parts_of(client).settings.namespace
        if once:
            done = _finish(client)
        else:
            note(f"upkeep of namespace {namespace}")
            done = _run(client)
    counts = fields_of(done, "promoted expired delivered")
    if as_json:
        print_json({"namespace": namespace, **counts})
    else:
        listed = ", ".join(f"{count} {verb}" for verb, count in counts.items())
        click.echo(f"namespace {namespace}: {listed}")


def _upkeep(client: Client) -> Upkeep:
    parts = parts_of(client)
    return Upkeep(parts.catalog, parts.name, spread=parts.store.spread)


def _finish(client: Client) -> Round:
    """Rounds until nothing more is due."""
    upkeep, done = _upkeep(client), Round(more=True)
    while done.more:
        done = done._replace(more=False).plus(parts_of(client).store.perform(upkeep.round()))
    return done


def _run(client: Client) -> Round:
    """Run rounds until a signal; wait while the server is unavailable."""
    upkeep, total, away = _upkeep(client), Round(), False
    series, admin = SeriesWriter(), parts_of(client.admin)
    with suppress(StoppedEarly), Stoppable():
        while True:
            try:
                done = parts_of(client).store.perform(upkeep.round())
                admin.store.perform(series.round(admin.operations))
            except (StoreUnavailable, AmbiguousResult) as error:
                if not away:
                    note(f"{error}; trying again")
                away = True
                time.sleep(_AGAIN_S)
                continue
            if away:
                note("the server is back")
            away, total = False, total.plus(done)
            time.sleep(_pause(done))
    return total


def _pause(done: Round) -> float:
    """Until the next due time, but not for long: what is published meanwhile may be due before."""
    if done.more:
        return 0.0
    wait = LOOK_EVERY_S if done.next_ms is None else done.next_ms / 1000
    return min(LOOK_EVERY_S, max(_SHORTEST_S, wait))
