"""What the checker says about a run, for people and for programs."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

_SHOWN = 20


class Verdict(StrEnum):
    """How a run ended."""

    PASS = "pass"
    FAIL = "fail"
    INVALID = "invalid"
    """The records contradict each other: the harness is at fault, or a reader of it."""
    STUCK = "stuck"
    """Nothing is wrong but that something did not end."""


class Finding(NamedTuple):
    """One thing that breaks an invariant."""

    invariant: str
    """Such as "I5"; "records" where they cannot be trusted."""
    subject: str
    """The message, with its topic and group."""
    text: str


@dataclass
class Report:
    """A verdict with its reasons.

    Attributes:
        findings: What is wrong, by invariant.
        counts: How much there was: accepted, leases, starts, committed, ….
        duplicates: Second starts by class, "D-a" to "D-i" (docs/guarantees.md).
        lost: Lost messages as "prefix", "middle" and "suffix" of their publishers' work: a suffix
            hints at durability, a middle at a bug.
        seconds: Percentiles and the like, in seconds, by name.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    duplicates: Counter[str] = field(default_factory=Counter)
    lost: dict[str, list[str]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst that the findings mean."""
        kinds = {finding.invariant for finding in self.findings}
        if "records" in kinds:
            return Verdict.INVALID
        if kinds - {"I10"}:
            return Verdict.FAIL
        return Verdict.STUCK if kinds else Verdict.PASS

    def of(self, invariant: str) -> list[Finding]:
        """The findings about one invariant."""
        return [finding for finding in self.findings if finding.invariant == invariant]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "verdict": str(self.verdict), "counts": self.counts, "seconds": self.seconds,
            "duplicates": dict(self.duplicates), "lost": self.lost,
            "findings": [finding._asdict() for finding in self.findings],
        }  # fmt: skip

    def table(self) -> str:
        """For people."""
        rows = [("verdict", str(self.verdict).upper())]
        rows += [(name, f"{count:,}") for name, count in self.counts.items()]
        rows += [
            (f"started again, {kind}", f"{n:,}") for kind, n in sorted(self.duplicates.items())
        ]
        rows += [(name, f"{value:.3f} s") for name, value in self.seconds.items()]
        rows += [
            (f"lost, {where}", " ".join(ids[:_SHOWN])) for where, ids in self.lost.items() if ids
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value}" for name, value in rows]
        for kind, count in sorted(Counter(f.invariant for f in self.findings).items()):
            lines.append(f"{kind}: {count} finding{'s' if count > 1 else ''}")
            lines += [f"  {f.subject}: {f.text}" for f in self.of(kind)[:_SHOWN]]
        return "\n".join(lines)
