"""The audit log of a namespace, the exit records of its workers, and the server's time."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rqretry.protocol.command import Command, call, query, text
from rqretry.protocol.keys import NamespaceKeys

NOTES_KEPT = 10_000
"""Entries of the audit log; the oldest go, a few later than exactly."""

EXIT_RECORDS_KEPT = 1000
"""Records of how worker processes ended; the oldest go, a few later than exactly."""


class Note(NamedTuple):
    """One entry of the audit log."""

    at_ms: int
    actor: str
    verb: str
    arguments: dict[str, Any]
    counts: dict[str, Any]


def audit_append(
    keys: NamespaceKeys,
    *,
    actor: str,
    verb: str,
    arguments: Mapping[str, Any],
    counts: Mapping[str, Any],
) -> Command[int]:
    """Add an entry to the audit log; answers the server's time in ms."""
    return call(
        keys.scripts,
        "audit_append",
        (actor, verb, _dump(arguments), _dump(counts), NOTES_KEPT),
        int,
        records=keys.audit,
    )


def notes(keys: NamespaceKeys, *, count: int) -> Command[list[Note]]:
    """The last entries of the audit log, the newest first."""
    return query(_notes, "XREVRANGE", keys.audit, "+", "-", "COUNT", count)


def exit_record(
    keys: NamespaceKeys, *, process: str, ending: str, ran: Sequence[Sequence[str]] = ()
) -> Command[int]:
    """Keep how a worker process ended, to explain later what became of its messages.

    Args:
        keys: The namespace.
        process: host:pid.
        ending: How it ended.
        ran: Topic, group and id of each message that it was running then.
    """
    facts: dict[str, Any] = {"said": ending}
    return call(
        keys.scripts,
        "audit_append",
        (process, "ended", _dump(facts | ({"ran": ran} if ran else {})), "{}", EXIT_RECORDS_KEPT),
        int,
        records=keys.exit_records,
    )


def exit_records(keys: NamespaceKeys) -> Command[list[Note]]:
    """What is kept of how worker processes ended, the newest first."""
    return query(_notes, "XREVRANGE", keys.exit_records, "+", "-", "COUNT", EXIT_RECORDS_KEPT)


def now(keys: NamespaceKeys) -> Command[int]:
    """The server's time in ms."""
    return call(keys.scripts, "now", (), int)


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), default=str)


def _notes(reply: list[Any]) -> list[Note]:
    found = []
    for _, flat in reply:
        fields = {text(flat[i]): text(flat[i + 1]) for i in range(0, len(flat), 2)}
        arguments, counts = json.loads(fields["a"]), json.loads(fields["n"])
        found.append(Note(int(float(fields["at"])), fields["by"], fields["e"], arguments, counts))
    return found
