"""The command: run scenarios, compare results or two trees, plot them, run the peers."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.costs import write_costs
from benchmarks.figures import Figures, summary, table
from benchmarks.pairs import run_pairs
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.side_by_side import (
    callers_side_by_side,
    callers_table,
    markdown,
    side_by_side,
)
from benchmarks.plot import plot_rates
from benchmarks.scenarios import GROUPS, SCENARIOS
from rqretry.cli.plan_measure import measure


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and do."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run scenarios, each on a private server")
    run.add_argument("scenarios", nargs="+", metavar="SCENARIO", choices=[*SCENARIOS, *GROUPS])
    run.add_argument("--repeat", type=int, default=1, help="times; medians are reported")
    run.add_argument("--messages", type=int, help="instead of each scenario's own number")
    run.add_argument("--json", action="store_true", help="print the figures as JSON")
    run.add_argument("--out", metavar="FILE", help="write them, with machine and versions")
    run.set_defaults(act=_run)
    compare = commands.add_parser("compare", help="compare two files of results")
    compare.add_argument("before", metavar="A.json")
    compare.add_argument("after", metavar="B.json")
    compare.set_defaults(act=_compare)
    pairs = commands.add_parser("pairs", help="this tree and another one, in turns")
    pairs.add_argument("before", metavar="TREE", type=Path, help="a checkout to compare with")
    pairs.add_argument("scenarios", nargs="+", metavar="SCENARIO", choices=[*SCENARIOS])
    pairs.add_argument("--pairs", type=int, default=10, help="how many of each; default 10")
    pairs.set_defaults(act=_pairs)
    _add_peers(commands)
    plot = commands.add_parser("plot", help="draw files of results (needs matplotlib)")
    plot.add_argument("files", nargs="+", metavar="FILE.json")
    plot.add_argument("--out", default="benchmarks.svg", metavar="FILE", help="PNG or SVG")
    plot.set_defaults(act=_plot)
    costs = commands.add_parser("costs", help="what `rqretry plan` reckons with, into the package")
    costs.add_argument("--repeat", type=int, default=5, help="times; medians are kept")
    costs.set_defaults(act=_costs)
    options = parser.parse_args(arguments)
    result: int = options.act(options)
    return result


def _add_peers(commands: Any) -> None:
    peers = commands.add_parser("peers", help="rqretry beside other systems (make bench-peers)")
    peers.add_argument("--only", nargs="+", default=[*PEERS], choices=[*PEERS], metavar="NAME")
    peers.add_argument("--repeat", type=int, default=1, help="times; medians are reported")
    peers.add_argument("--messages", type=int, help="instead of each system's own number")
    peers.add_argument("--no-kill", action="store_true", help="leave the minutes of kill -9 out")
    peers.add_argument("--callers", action="store_true", help="only many callers at once")
    peers.add_argument("--out", metavar="FILE", help="write them, with machine and versions")
    peers.set_defaults(act=_peers)


def _run(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(n for name in options.scenarios for n in GROUPS.get(name, (name,))))
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    for turn in range(options.repeat):  # interleaved, so that a slow minute hits all of them
        for name in names:
            print(f"{name} ({turn + 1} of {options.repeat}) ...", file=sys.stderr, flush=True)
            runs[name].append(SCENARIOS[name](options.messages))
    found: dict[str, dict[str, Any]] = {name: summary(made) for name, made in runs.items()}
    print(json.dumps(found, indent=1) if options.json else table(found))
    if options.out:
        results.write(options.out, found)
    return 0


def _compare(options: argparse.Namespace) -> int:
    for line in results.comparison(results.read(options.before), results.read(options.after)):
        print(line)
    return 0


def _pairs(options: argparse.Namespace) -> int:
    after = Path(__file__).resolve().parent.parent
    for found in run_pairs(options.before.resolve(), after, options.scenarios, options.pairs):
        print(found.line(), flush=True)
    return 0


def _peers(options: argparse.Namespace) -> int:
    if options.callers:
        beside = callers_side_by_side(options.only, options.repeat, options.messages)
        print(callers_table(beside))
        if options.out:
            results.write(options.out, beside)
        return 0
    found = side_by_side(options.only, options.repeat, options.messages, kill=not options.no_kill)
    print(markdown(found))
    if options.out:
        results.write(options.out, found)
    return 0


def _costs(options: argparse.Namespace) -> int:
    print(write_costs([measure() for _ in range(options.repeat)]))
    return 0


def _plot(options: argparse.Namespace) -> int:
    drawn = plot_rates({Path(file).stem: results.read(file) for file in options.files}, options.out)
    print(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
