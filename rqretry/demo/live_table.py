"""Showing the demo while it runs: a live table on a terminal, plain lines elsewhere."""

import time
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rqretry.admin.views import GroupStats
from rqretry.demo.topology import Progress

_LINE_EVERY_S = 5.0
_TABLE_EVERY_S = 0.2
_RATE_OVER_S = 1.0


class View:
    """A context manager; `show` may be called as often as one likes.

    Args:
        console: Where to; a live table if it is a terminal.
        rows: Flights in all.
    """

    def __init__(self, console: Console, rows: int) -> None:
        self._console = console
        self._rows = rows
        self._live = Live(console=console, transient=True, auto_refresh=False)
        self._every = _TABLE_EVERY_S if console.is_terminal else _LINE_EVERY_S
        self._next = 0.0
        self._rates: dict[str, _Rate] = {}

    def report(self, line: str) -> None:
        """One line that stays."""
        self._console.print(line)

    def show(self, now: Progress) -> None:
        """Show the state, unless the last one was shown just now."""
        clock = time.monotonic()
        if clock < self._next:
            return
        self._next = clock + self._every
        for group in (now.book, now.claims):
            self._rates.setdefault(group.group, _Rate()).note(clock, group)
        if self._console.is_terminal:
            self._live.update(self._table(now), refresh=True)
        else:
            for group in (now.book, now.claims):
                self.report(self._line(group))

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def _table(self, now: Progress) -> Group:
        table = Table(title=f"{self._rows:,} flights", title_justify="left")
        table.add_column("group")
        for name in ("ready", "retry", "in flight", "waiting", "committed", "dead", "deliveries/s"):
            table.add_column(name, justify="right", min_width=7)
        for g in (now.book, now.claims):
            numbers = (g.ready, g.retry, g.inflight, g.waiting_count, _committed(g), g.dead)
            rate = self._rates[g.group].per_second
            table.add_row(g.group, *(f"{n:,}" for n in (*numbers, rate)))
        return Group(table, Text(f"claims waiting, level:count  {_rungs(now.claims) or '-'}"))

    def _line(self, g: GroupStats) -> str:
        return (
            f"{g.group:12}  ready {g.ready}, retry {g.retry}, in flight {g.inflight}, waiting"
            f" {g.waiting_count}{f' ({_rungs(g)})' if g.waiting else ''}, committed"
            f" {_committed(g)}, dead {g.dead}, {self._rates[g.group].per_second}/s"
        )


class _Rate:
    """Deliveries per second over the last second or two."""

    def __init__(self) -> None:
        self._from: tuple[float, int] | None = None
        self.per_second = 0

    def note(self, clock: float, group: GroupStats) -> None:
        leased = group.counters.get("lease", 0)
        if self._from is None:
            self._from = (clock, leased)
        elif clock - self._from[0] >= _RATE_OVER_S:
            self.per_second = round((leased - self._from[1]) / (clock - self._from[0]))
            self._from = (clock, leased)


def _committed(group: GroupStats) -> int:
    return group.counters.get("succeed", 0)


def _rungs(group: GroupStats) -> str:
    return " ".join(f"{rung.level}:{rung.count}" for rung in group.waiting)
