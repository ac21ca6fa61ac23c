"""The judgement on a run: every invariant over its records, one report.

report = check(gather(directory, client, "test", aof=server_directory))
print(report.table())
assert report.verdict is Verdict.PASS
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from tests.model.checker import invariants, leases
from tests.model.checker.history import FAIL, INFO
from tests.model.checker.records import MessageName, Records
from tests.model.checker.report import Finding, Report
from tests.model.checker.snapshot import disagreements
from tests.model.checker.transitions import Kind

Invariant = Callable[[Records], list[Finding]]

INVARIANTS: tuple[Invariant, ...] = (
    invariants.conserved, invariants.one_place, invariants.bodies_match, invariants.created_once,
    leases.attempts_counted, leases.on_time, leases.one_live_lease, leases.fenced,
    leases.in_order, leases.explained, invariants.idempotent, invariants.drained,
    invariants.honest, leases.clock_grows, invariants.counted,
)  # fmt: skip
"""I1, I1b, I1c, I2, I3, …, I13."""

OF_WHOLE_SCRIPTS = (invariants.created_once, leases.on_time)
"""What a script that was cut breaks: it is repeated, and what it wrote is written anew."""


def check(records: Records) -> Report:
    """Judge a run: PASS, FAIL, INVALID (its records contradict each other) or STUCK."""
    report = Report()
    report.findings = [Finding("records", "the run", text) for text in records.broken]
    if records.journal is not None:
        differing = disagreements(records.journal.final, records.final, records.namespace)
        report.findings += [Finding("records", "journal and snapshot", text) for text in differing]
    for invariant in INVARIANTS:
        if not (records.expect.script_errors and invariant in OF_WHOLE_SCRIPTS):
            report.findings += invariant(records)
    report.counts = _counts(records)
    report.duplicates = Counter(
        kind or "unexplained" for _, kind, _ in leases.duplicate_starts(records)
    )
    report.lost = split(records, invariants.lost_messages(records))
    report.seconds = _lateness(records)
    return report


def split(records: Records, lost: Iterable[MessageName]) -> dict[str, list[str]]:
    """Lost messages by where they stand in the work of their publisher.

    Before its first message that survived: prefix. Behind the last one: suffix, which hints at what
    was not durable yet. Between them: middle, which hints at a bug.
    """
    gone, by_process = set(lost), defaultdict(list)
    for name, operation in records.accepted.items():
        by_process[operation.proc].append(name)
    found: dict[str, list[str]] = {"prefix": [], "middle": [], "suffix": []}
    for names in by_process.values():
        alive = [at for at, name in enumerate(names) if name not in gone]
        first, last = (alive[0], alive[-1]) if alive else (len(names), len(names))
        for at, name in enumerate(names):
            if name in gone:
                where = "prefix" if at < first else "suffix" if at > last else "middle"
                found[where].append(name.id)
    return found


def _counts(records: Records) -> dict[str, int]:
    kinds = Counter(step.kind for step in records.transitions)
    gone = invariants.uncommitted_and_gone(records)
    lost = invariants.lost_messages(records)
    refused = sum(op.op == "publish" and op.outcome == FAIL for op in records.history)
    return {
        "tried to publish": sum(op.op == "publish" for op in records.history),
        "accepted": len(records.accepted),
        "refused": refused,
        "ambiguous": sum(op.op == "publish" and op.outcome == INFO for op in records.history),
        "ambiguous, and stored": len(records.ambiguous & records.created.keys()),
        "leases": kinds[Kind.LEASE],
        "handler starts": len(records.effects),
        "committed": kinds[Kind.SUCCEED],
        "failed": kinds[Kind.FAIL],
        "expired": kinds[Kind.EXPIRE],
        "released": kinds[Kind.RELEASE],
        "redriven": kinds[Kind.REDRIVE],
        "dead at the end": len(records.dead),
        "queued at the end": len(records.held - records.dead),
        "purged": kinds[Kind.PURGE],
        "faults": sum(op.op == "fault" for op in records.history),
        "lost": len(lost),
        "lost, at a tier that was not covered": len(gone) - len(lost),
    }


def _lateness(records: Records) -> dict[str, float]:
    late = sorted(max(0.0, step.at_ms - due) for due, step in leases.late_leases(records))
    if not late:
        return {}
    return {
        "a retry was late by, p50": late[len(late) // 2] / 1000,
        "a retry was late by, p99": late[min(len(late) - 1, len(late) * 99 // 100)] / 1000,
        "a retry was late by, most": late[-1] / 1000,
    }
