"""The commonest errors of what waits for a retry, below the numbers of its group."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rqretry.admin.results import Reasons
from rqretry.cli.output import Part, table_of


def reason_lines(found: Sequence[Reasons]) -> Iterator[Part]:
    """A table of them, the groups with the most first; nothing where nothing waits."""
    worst = sorted(found, key=lambda each: -each.waiting)
    rows = [(r.topic, r.group, _count(r, e.count), e.error, e.sample_id)
            for r in worst for e in r.errors]  # fmt: skip
    if rows:
        yield ""
        yield table_of(["topic", "group", "#waiting", "for a retry after", "such as"], rows)


def reason_fields(found: Sequence[Reasons], topic: str, group: str) -> dict[str, object]:
    """The same as fields of a group; nothing where nothing waits."""
    for each in found:
        if (each.topic, each.group) == (topic, group):
            errors = [asdict(error) for error in each.errors]
            return {"reasons": {"waiting": each.waiting, "looked": each.looked, "errors": errors}}
    return {}


def _count(found: Reasons, count: int) -> str:
    """How many, and of how many where not all were looked at."""
    sampled = found.looked < found.waiting
    return f"{count} of the first {found.looked}" if sampled else str(count)
