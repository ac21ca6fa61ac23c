"""rqretry plan: how many servers and workers, how much memory and network a load needs."""

import re
from collections.abc import Mapping
from typing import Any

import click

from rqretry.admin.capacity import BUSY, COSTS, Load, Range, plan, read_costs
from rqretry.cli.errors import DONE, FAILED
from rqretry.cli.options import Whole, duration, json_option, reader, whole_or
from rqretry.cli.output import note, print_fields, print_json, print_table
from rqretry.cli.plan_measure import MESSAGES, measure
from rqretry.cli.sizes import in_bytes
from rqretry.core.delay_levels import DEFAULT_LEVELS
from rqretry.core.errors import show
from rqretry.core.limits import check_max_retries
from rqretry.core.rates import per_second
from rqretry.core.retry_policy import RetryPolicy, compiled

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(|B|KB|KiB|MB|MiB)", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "b": 1, "kb": 1000, "kib": 1024, "mb": 1000**2, "mib": 1024**2}
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)%", re.ASCII)
_TWICE = 2.0
"""What costs up to so many times as much, or as little, is as planned."""


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found:
        raise click.UsageError(f"{name} {show(text)} is not a size: write 500, 1KB or 64KiB")
    return round(float(found[1]) * _UNITS[found[2].lower()])


def _share(name: str, text: str) -> float:
    found = _SHARE.fullmatch(text)
    if not found:
        raise click.UsageError(f"{name} {show(text)} is not a share of the attempts: write 2%")
    return float(found[1]) / 100


@click.command(epilog="Example: rqretry plan --rate 20000/s --body 1KB --failing 2%")
@click.option("--rate", metavar="RATE", required=True,
              callback=reader(lambda name, text: per_second(text, name=name)),
              help='Messages published: "20000/s", "500/m", "100/h".')  # fmt: skip
@click.option("--body", metavar="SIZE", default="1KB", show_default=True, callback=reader(_size),
              help="The size of a body, such as 500, 1KB or 64KiB.")  # fmt: skip
@click.option("--failing", metavar="SHARE", default="1%", show_default=True,
              callback=reader(_share), help="The share of attempts that fail.")  # fmt: skip
@click.option("--policy", metavar="POLICY", default="rocketmq", show_default=True,
              callback=reader(lambda _, text: RetryPolicy.parse(text)),
              help="The waits between attempts, as for rqretry group set.")  # fmt: skip
@click.option("--max-retries", metavar="N|unlimited", default="16", show_default=True,
              callback=whole_or("unlimited"),
              help="After how many a message is dead.")  # fmt: skip
@click.option("--groups", type=Whole(1, 250), metavar="N", default=1, show_default=True,
              help="Groups that each get every message.")  # fmt: skip
@click.option("--bulk", is_flag=True, help="It is published by publish_many, hundreds per call.")
@click.option("--handler", metavar="DURATION", default="0s", callback=duration(),
              help="How long a handler takes; then slots are planned too.")  # fmt: skip
@click.option("--outage", metavar="DURATION", default="10m", show_default=True,
              callback=duration(),
              help="How long consumers may be away while messages are stored.")  # fmt: skip
@click.option("--retention", metavar="DURATION", default="0s", callback=duration(),
              help="How long consumed messages are kept for a replay (topic set --keep);"
              " default none.")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Measure on this machine, on a private Redis, and compare.")  # fmt: skip
@json_option
def plan_(*, check: bool, as_json: bool, **given: Any) -> int:
    """Plan servers, workers, memory and network for a load.

    From costs that were measured, with the range of those measurements. The machine may be another
    than yours: with --check they are measured here as well, in some seconds; the exit status is 1
    if one is more than twice, or less than half, of what is planned with.
    """
    load = _load(given)
    costs, about = read_costs()
    planned = plan(load, costs)
    here = measure(MESSAGES) if check else {}
    if as_json:
        compared = {"measured_here": here} if check else {}
        print_json({
            "plan": {name: figure._asdict() for name, figure in planned.items()},
            "costs": {name: cost._asdict() for name, cost in costs.items()},
            "about": about, **compared,
        })  # fmt: skip
    else:
        _print(load, planned, about)
        if check:
            _print_checked(costs, here)
    return FAILED if any(map(_is_other, costs.values(), _in_step(costs, here))) else DONE


def _load(given: Mapping[str, Any]) -> Load:
    return Load(
        rate=given["rate"],
        body_bytes=given["body"],
        failing=given["failing"],
        policy=compiled(given["policy"], DEFAULT_LEVELS.ms),
        max_retries=check_max_retries(given["max_retries"]),
        groups=given["groups"],
        bulk=given["bulk"],
        keep_s=given["retention"],
        outage_s=given["outage"],
        handler_s=given["handler"],
    )


def _print(load: Load, planned: Mapping[str, Range], about: Mapping[str, Any]) -> None:
    retries, _ = load.retries()
    dead = planned["dead_per_day"]
    dying = f"{_bytes(dead)} more every day" if dead.high >= 1 else "hardly any"
    print_fields([
        ("attempts", f"{1 + retries:.3f} per message and group"),
        ("primaries", _count(planned, "primaries", "server_busy")),
        ("workers", _count(planned, "workers", "worker_busy") + ", beside what handlers do"),
        ("slots", f"{planned['slots'].expected:.0f} handlers at once" if load.handler_s else None),
        ("publishers", f"{_range(planned['producer_busy'])} cores"),
        ("memory", f"{_bytes(planned['memory'])} of all primaries together"),
        ("  backlog", f"{_bytes(planned['backlog'])}, while consumers are away"),
        ("  waiting", f"{_bytes(planned['waiting'])}, for retries"),
        ("  kept", f"{_bytes(planned['kept'])}, for a replay" if load.keep_s else None),
        ("dead letters", dying),
        ("network in", f"{_bytes(planned['network_in'])} a second, to the primaries"),
        ("network out", f"{_bytes(planned['network_out'])} a second"),
        ("measured", f"{about['measured']}, Redis {about['redis_server']}, {about['python']}"),
    ])  # fmt: skip
    note("in brackets: the range of the measurements that this rests on; see --check")


def _count(planned: Mapping[str, Range], name: str, busy: str) -> str:
    figure = planned[name]
    count = f"{figure.expected:.0f}"
    if figure.low != figure.high:
        count += f" ({figure.low:.0f} to {figure.high:.0f})"
    return f"{count}: {_range(planned[busy])} cores, each used to {100 * BUSY:.0f} %"


def _range(figure: Range) -> str:
    return f"{figure.expected:.2f} ({figure.low:.2f} to {figure.high:.2f})"


def _bytes(figure: Range) -> str:
    return f"{in_bytes(figure.expected)} ({in_bytes(figure.low)} to {in_bytes(figure.high)})"


def _in_step(costs: Mapping[str, Range], here: Mapping[str, float]) -> list[float | None]:
    return [here.get(name) for name in costs]


def _is_other(cost: Range, here: float | None) -> bool:
    if here is None or max(cost.expected, here) < 1:  # nothing worth a comparison
        return False
    return not cost.expected / _TWICE <= here <= cost.expected * _TWICE


def _print_checked(costs: Mapping[str, Range], here: Mapping[str, float]) -> None:
    rows = [
        (name, f"{cost.expected:.1f}", f"{here[name]:.1f}",
         f"{here[name] / cost.expected:.2f}" if cost.expected else "",
         "other" if _is_other(cost, here[name]) else "")
        for name, cost in ((name, costs[name]) for name in COSTS)
    ]  # fmt: skip
    print_table(["cost per message", "#planned with", "#here", "#ratio", ""], rows)
    if any(row[-1] for row in rows):
        note("this machine is another one: multiply the figures by the ratios of what they rest on")
