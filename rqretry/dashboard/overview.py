"""The first page: what is wrong, how much there is, and every group."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from rqretry.admin.incidents import ALERTS, NEARLY_FULL, STUCK, UNREADABLE, Incident
from rqretry.admin.views import Stats
from rqretry.cli.sizes import in_bytes
from rqretry.dashboard.charts import SPARK, Points, draw
from rqretry.dashboard.render import render
from rqretry.dashboard.request_args import asked, page_of, text_of, word_of
from rqretry.dashboard.rows import PAGE_ROWS, SHOWS, SORTS, Row, choose, rows_of
from rqretry.dashboard.sampler import Sampler
from rqretry.protocol.series import DAY, WEEK, Point

SPANS = {"day": DAY, "week": WEEK}
"""Of the charts, in minutes; without one they show the last ten."""
_COLUMNS = {
    "group": "group",
    "topic": "topic",
    "ready": "ready",
    "inflight": "in flight",
    "waiting": "waiting",
    "dead": "dead",
    "oldest": "oldest",
    "done": "done/s",
    "failed": "failed/s",
    "workers": "workers",
}


async def overview(request: Request, sampler: Sampler, frame: dict[str, object]) -> Response:
    """Problems first."""
    fields = asked(request, "q", "show", "sort", "page", "span")
    sorts = [*SORTS, *(f"-{name}" for name in SORTS)]
    chosen = {
        "q": text_of(fields, "q"),
        "show": word_of(fields, "show", (*SHOWS, *ALERTS, STUCK, UNREADABLE), ""),
        "sort": word_of(fields, "sort", sorts, "problem"),
        "span": span_of(fields),
    }
    page = page_of(fields)
    rows = await rows_of(sampler)
    stats = await sampler.latest()
    found = choose(rows, text=chosen["q"].lower(), show=chosen["show"], sort=chosen["sort"])

    def link(**changed: Any) -> str:
        return "/?" + urlencode({name: one for name, one in (chosen | changed).items() if one})

    problems: dict[str, list[Incident]] = defaultdict(list)
    for one in sampler.incidents:
        problems[one.name].append(one)
    return render(
        "overview.html",
        problems=problems,
        count=len(sampler.incidents),
        tiles=_tiles(stats, rows),
        charts=await _charts(sampler, chosen["span"]),
        spans=spans(lambda span: link(span=span)),
        columns=_COLUMNS.items(),
        shows=(*SHOWS, *problems),
        asked=chosen,
        rows=found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
        total=len(found),
        everything=len(rows),
        page=page,
        last=page * PAGE_ROWS >= len(found),
        link=link,
        page_link=lambda number: link(page=number),
        spark=lambda row: _spark(sampler, row),
        **frame,
    )


def span_of(fields: dict[str, str]) -> str:
    """Of how long the charts are: a name of SPANS, or "" for ten minutes."""
    return word_of(fields, "span", SPANS, "")


def spans(link: Callable[[str], str]) -> list[tuple[str, str, str]]:
    """What can be chosen: name, word and address."""
    return [(name, name or "10 minutes", link(name)) for name in ("", *SPANS)]


def _tiles(stats: Stats, rows: list[Row]) -> list[tuple[str, str, bool]]:
    def total(values: list[float | None]) -> str:
        known = [value for value in values if value is not None]
        return f"{sum(known):,.1f}".removesuffix(".0") if known else "-"

    failed = total([row.failed for row in rows])
    used, most = stats.used_memory, stats.max_memory
    memory = "-" if used is None else in_bytes(used) + (f" / {in_bytes(most)}" if most else "")
    return [
        ("ready", f"{stats.ready + stats.retry:,}", False),
        ("in flight", f"{stats.inflight:,}", False),
        ("waiting", f"{stats.waiting:,}", False),
        ("scheduled", f"{stats.scheduled:,}", False),
        ("dead", f"{stats.dead:,}", stats.dead > 0),
        ("done/s", total([row.done for row in rows]), False),
        ("failed/s", failed, failed not in ("-", "0")),
        ("memory", memory, bool(most) and (used or 0) > NEARLY_FULL * (most or 0)),
    ]


async def _charts(sampler: Sampler, span: str) -> list[object]:
    if span:
        return _of_past(await sampler.past.points(None, SPANS[span]))
    due = [(one.at, float(one.total.due)) for one in sampler.samples]
    return drawn(sampler.total_rates("succeed"), sampler.total_rates("fail"), due)


async def group_charts(sampler: Sampler, topic: str, group: str, span: str) -> list[object]:
    """Of one group."""
    pair = topic, group
    if span:
        return _of_past(await sampler.past.points(pair, SPANS[span]))
    done, failed = (sampler.rates(*pair, verb) for verb in ("succeed", "fail"))
    return drawn(done, failed, sampler.lag(*pair))


def _of_past(points: Sequence[Point]) -> list[object]:
    done = [(one.at_s, one.succeeded / one.seconds) for one in points]
    failed = [(one.at_s, one.failed / one.seconds) for one in points]
    return drawn(done, failed, [(one.at_s, float(one.due)) for one in points])


def drawn(done: Points, failed: Points, due: Points) -> list[object]:
    """The two charts."""
    return [
        draw("Attempts per second", {"done": done, "failed": failed}),
        draw("Due and not started", {"due": due}),
    ]


def _spark(sampler: Sampler, row: Row) -> tuple[tuple[str, str], ...]:
    """What it has done and failed in the last ten minutes; nothing if nothing."""
    pair = row.topic, row.group.group
    verbs = {"done": "succeed", "failed": "fail"}
    drawn = draw("", {name: sampler.rates(*pair, verb) for name, verb in verbs.items()}, SPARK)
    return drawn.lines if drawn.top else ()
