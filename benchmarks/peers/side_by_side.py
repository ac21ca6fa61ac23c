"""rqretry and the other systems in one run, on the same machine in the same minutes."""

import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.peers.catalog import PEERS
from benchmarks.peers.environments import program, version
from benchmarks.peers.measure import LOSS_WAIT_S, RETRY_LIMIT_S, measure
from benchmarks.peers.measure import callers as callers_of
from benchmarks.scenarios import SCENARIOS, callers

_OURS = "rqretry"
_SINGLES = 3000
_CHECKS = {"rate": "checked", "w3_per_s": "w3_checked"}
_COLUMNS = (
    ("publish_per_s", "publish 1x1 /s"),
    ("publish_bulk_per_s", "bulk /s"),
    ("rate", "W1 /s"),
    ("w3_per_s", "W3 /s"),
    ("p50_ms", "W4 p50 ms"),
    ("p99_ms", "p99 ms"),
    ("worker_us", "worker us"),
    ("redis_us", "Redis us"),
    ("bytes_per_message", "bytes"),
    ("recovery_s", "kill -9: back after s"),
)


def side_by_side(
    names: Sequence[str], repeat: int, messages: int | None, *, kill: bool = True
) -> dict[str, dict[str, Any]]:
    """Medians of each system, rqretry first; one that is not installed is skipped with a note.

    What a kill -9 loses is tried once, in the first turn.
    """
    systems = [_OURS]
    for name in names:
        if program(name) is None:
            print(f"{name}: skipped, not installed (make bench-peers)", file=sys.stderr)
        else:
            systems.append(name)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in systems}
    for turn in range(repeat):
        for name in systems:
            measured = _ours if name == _OURS else partial(measure, name)
            with _announced(name, turn, repeat):
                runs[name].append(measured(messages, kill=kill and turn == 0))
    return {name: _described(name, made) for name, made in runs.items() if made}


@contextmanager
def _announced(name: str, turn: int, repeat: int) -> Iterator[None]:
    """Say whose turn it is, and why it failed if it does: the others are measured all the same."""
    print(f"{name} ({turn + 1} of {repeat}) ...", file=sys.stderr, flush=True)
    try:
        yield
    except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
        print(f"{name}: {error}", file=sys.stderr)


def _ours(messages: int | None, *, kill: bool) -> dict[str, Any]:
    publish = SCENARIOS["publish"](min(messages or _SINGLES, _SINGLES))
    bulk, drained = SCENARIOS["publish_bulk"](messages), SCENARIOS["w1"](messages)
    latency, failing = SCENARIOS["w4"](300), SCENARIOS["w3"](messages)
    figures: dict[str, Any] = {
        "publish_per_s": publish.rate,
        "publish_bulk_per_s": bulk.rate,
        "rate": drained.rate,
        "worker_us": drained.worker_us,
        "redis_us": drained.redis_us,
        "bytes_per_message": drained.bytes_per_message,
        "checked": drained.checked,
        "w3_per_s": failing.rate,
        "w3_checked": failing.checked,
        "p50_ms": latency.p50_ms,
        "p99_ms": latency.p99_ms,
    }
    if not kill:
        return figures
    crash = SCENARIOS["crash"](20)
    return figures | {
        "survives_kill": crash.checked,
        "needs_traffic": False,
        "recovery_s": crash.more["latest_ms"] / 1000,
    }


def callers_side_by_side(
    names: Sequence[str], repeat: int, messages: int | None
) -> dict[str, dict[str, Any]]:
    """Medians of many callers at once: asyncio and threads of rqretry, then each other system."""
    installed = [name for name in names if program(name) is not None]
    kinds = [f"{_OURS} {kind}" for kind in callers.KINDS]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in (*kinds, *installed)}
    for turn in range(repeat):
        for name, made in runs.items():
            with _announced(name, turn, repeat):
                if name in kinds:
                    made.append(callers.figures(name.partition(" ")[2], messages))
                else:
                    made.append(callers_of(name, messages))
    return {name: summary_of(made) for name, made in runs.items() if made}


def summary_of(runs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The median of each figure, and the least and the most of it."""
    return {
        figure: [
            round(pick(run[figure] for run in runs), 3) for pick in (statistics.median, min, max)
        ]
        for figure in runs[0]
    }


def callers_table(found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """A table for people: messages a second with their spread, p99 and CPU of the server."""
    heads = [f"{number} at once: /s, p99 ms, Redis us" for number in callers.AT_ONCE]
    lines = [f"| system | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, figures in found.items():
        cells = []
        for number in callers.AT_ONCE:
            rate, low, high = figures[f"{number}_per_s"]
            p99, cpu = figures[f"{number}_p99_ms"][0], figures[f"{number}_redis_us"][0]
            cells.append(f"{rate:,.0f} ({low:,.0f} to {high:,.0f}), {p99:.2f}, {cpu:.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _described(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"runs": len(runs)}
    for figure in runs[0]:
        values = [run[figure] for run in runs if run.get(figure) is not None]
        if isinstance(runs[0][figure], bool):
            found[figure] = all(values)
        else:
            found[figure] = round(statistics.median(values), 3) if values else None
    if name == _OURS:
        return {**found, "settings": "defaults; in the kill test visibility 2 s"}
    described = {"version": version(name), "settings": PEERS[name].settings}
    return found | described | ({"at_most_once": True} if PEERS[name].at_most_once else {})


def markdown(found: Mapping[str, Mapping[str, Any]]) -> str:
    """A table for people."""
    lines = [
        "| system | " + " | ".join(title for _, title in _COLUMNS) + " |",
        "|---" * (len(_COLUMNS) + 1) + "|",
    ]
    for name, figures in found.items():
        cells = [_cell(figures, key) for key, _ in _COLUMNS]
        lines.append(f"| {name} {figures.get('version', '')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(figures: Mapping[str, Any], key: str) -> str:
    value = figures.get(key)
    if key == "recovery_s" and figures.get("at_most_once"):
        return "lost (at most once)"
    if key == "recovery_s" and figures.get("survives_kill") is False:
        return f"not in {LOSS_WAIT_S:.0f} s"
    if key == "recovery_s" and figures.get("needs_traffic"):
        return "only with traffic"
    if value is None:
        return "-"
    shown = f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"  # noqa: PLR2004
    return shown + _reservation(figures, key)


def _reservation(figures: Mapping[str, Any], key: str) -> str:
    """The remark beside a rate: a wrong count, or the time ran out."""
    if figures.get(_CHECKS.get(key, "")) is False:
        return " (not each as often as it had to be)"
    if key == "w3_per_s" and figures.get("w3_done", 0) < figures.get("w3_messages", 0):
        done, count = figures["w3_done"], figures["w3_messages"]
        return f" ({done:,.0f} of {count:,.0f} in {RETRY_LIMIT_S:.0f} s)"
    return ""
