"""The report of a campaign: one table for people, the same as JSON for programs."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.campaigns.plan import Kind

HEADINGS = (
    "part", "trials", "runs", "kills", "accepted", "lost", "double leases", "unexplained dup.",
    "explained dup.", "loss per trial", "not covered: lost", "seeds",
)  # fmt: skip
NOTHING = "-"
EMPTIED = "emptied"
"""The tier of what was accepted before the data were gone."""
UNCOVERED: dict[str, tuple[str, ...]] = {
    Kind.FAILOVER: ("memory",), Kind.EVERYSEC: ("memory",), Kind.EMPTY: (EMPTIED,),
}  # fmt: skip
"""What each kind of fault may cost (docs/guarantees.md)."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a campaign is to have at its end.

    Attributes:
        trials: By kind.
        messages: Accepted, at a durability that covers what happened.
    """

    trials: Mapping[Kind, float]
    messages: int


@dataclass
class Part:
    """What the runs of one kind add up to.

    Attributes:
        name: The kind.
        trials: See Kind.
        runs: How many runs.
        accepted: Messages that a publisher was told are stored, at a durability that covers what
            happened.
        lost, double_leases, unexplained: What must be 0.
        explained: Handlers started once more because of a fault or a planned failure.
        uncovered: Accepted with less durability than the fault takes.
        shown: Lost of those: not a defect, and not hidden.
        kills: Processes killed with -9.
        idle_kills: Workers among them that had not begun to work.
        strikes: What was done, by its words.
        seeds: Of the runs.
        failed: Seeds of runs with a finding.
        other: Findings of other kinds.
    """

    name: str
    trials: int = 0
    runs: int = 0
    accepted: int = 0
    lost: int = 0
    double_leases: int = 0
    unexplained: int = 0
    explained: int = 0
    uncovered: int = 0
    shown: int = 0
    kills: int = 0
    idle_kills: int = 0
    strikes: Counter[str] = field(default_factory=Counter)
    other: int = 0
    seconds: float = 0.0
    seeds: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def add(self, run: dict[str, Any]) -> None:
        """Add a run, as its JSON has it."""
        verdict = run["verdict"]
        lost = sum(map(len, verdict["lost"].values())) - run["shown_losses"]
        covered = covered_of(run)
        self.runs += 1
        self.trials += run["trials"]
        self.accepted += covered
        self.uncovered += sum(verdict["accepted"].values()) - covered
        self.lost += lost
        self.double_leases += len(verdict["double_leases"])
        self.unexplained += len(verdict["unexplained"])
        self.explained += verdict["explained"]
        self.shown += run["shown_losses"]
        self.kills += run["kills"]
        self.idle_kills += run["idle_kills"]
        self.strikes.update(run["strikes"])
        self.other += len(verdict["findings"]) + len(verdict["phantoms"])
        self.seconds += run["seconds"]
        self.seeds.append(run["seed"])
        if run["findings"]:
            self.failed.append(run["seed"])

    def row(self) -> list[str]:
        """Of the table."""
        seeds = sorted(self.seeds)
        return [
            self.name, f"{self.trials:,}", str(self.runs), f"{self.kills:,}",
            f"{self.accepted:,}", str(self.lost),
            str(self.double_leases), str(self.unexplained), f"{self.explained:,}",
            bound(self.lost, self.trials if self.accepted else 0),
            f"{self.shown:,} of {self.uncovered:,}" if self.uncovered else NOTHING,
            f"{seeds[0]}-{seeds[-1]}" if seeds else NOTHING,
        ]  # fmt: skip


def covered_of(run: dict[str, Any]) -> int:
    """Accepted messages of a run whose durability covers what happened to it."""
    return sum(
        count
        for tier, count in run["verdict"]["accepted"].items()
        if tier not in UNCOVERED.get(run["kind"], ())
    )


def bound(events: int, trials: int) -> str:
    """The rule of three: 0 in n trials mean at most 3/n, at 95 %; what was seen has no bound."""
    if events or not trials:
        return NOTHING
    return f"<= {min(1.0, 3 / trials):.2g}"


def parts_of(runs: Iterable[dict[str, Any]]) -> list[Part]:
    """The runs, by kind."""
    found: dict[str, Part] = {}
    for run in runs:
        found.setdefault(run["kind"], Part(run["kind"])).add(run)
    return [found[kind] for kind in map(str, Kind) if kind in found]


def total_of(parts: Sequence[Part]) -> Part:
    """The last line of the table."""
    total = Part("all")
    for part in parts:
        for name in (
            "trials", "runs", "accepted", "lost", "double_leases", "unexplained", "explained",
            "uncovered", "shown", "kills", "idle_kills", "other", "seconds",
        ):  # fmt: skip
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.strikes += part.strikes
        total.seeds += part.seeds
        total.failed += part.failed
    return total


def shortage(parts: Sequence[Part], wanted: Wanted) -> list[str]:
    """What a campaign has less of than it wants, in words."""
    found = []
    for kind, count in wanted.trials.items():
        trials = sum(part.trials for part in parts if part.name == kind)
        if trials < round(count):
            found.append(f"{kind} {trials} of {round(count)}")
    accepted = total_of(parts).accepted
    if accepted < wanted.messages:
        found.append(f"accepted messages {accepted:,} of {wanted.messages:,}")
    return found


def table(parts: Sequence[Part]) -> str:
    """The report for people."""
    total = total_of(parts)
    rows = [list(HEADINGS), *(part.row() for part in parts), total.row()]
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    lines.insert(-1, lines[1])
    return "\n".join([*lines, "", *_in_text(total)])


def _in_text(total: Part) -> list[str]:
    per_message = bound(total.lost, total.accepted)
    lines = [
        f"lost {total.lost} of {total.accepted:,} accepted messages ({per_message} at 95 %)",
        "struck: " + ", ".join(f"{what} {n:,}" for what, n in sorted(total.strikes.items())),
        f"workers killed before their first message, of these: {total.idle_kills:,}",
        "loss per trial: 3/n for 0 in n trials (95 %)",
        "not covered: accepted with less durability than the fault takes, so never promised",
    ]
    if total.other:
        lines.append(f"other findings: {total.other}; see the JSON")
    return lines


def write_json(
    path: Path, parts: Sequence[Part], runs: Sequence[dict[str, Any]], **about: Any
) -> None:
    """The report for programs: the parts, and every run without its evidence."""
    total = total_of(parts)
    report = {
        "schema": 1,
        **about,
        "parts": [vars(part) | {"loss_per_trial": bound(part.lost, part.trials)} for part in parts],
        "total": vars(total),
        "runs": list(runs),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
