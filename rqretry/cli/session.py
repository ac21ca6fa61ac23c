"""A client for one command: it fails fast, and knows which other namespaces there are."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from rqretry.cli.options import target_of
from rqretry.cli.output import Cells, note, print_list
from rqretry.client import Client
from rqretry.core.errors import GroupNotFound, RqretryError, TopicNotFound
from rqretry.core.parts import parts_of
from rqretry.protocol.command import Command
from rqretry.transport.store_sync import SyncStore, reach

_CATALOG = re.compile(r"rqretry:([^:]+):\{\1\}:topics")
_SCAN_COUNT, _MOST_SCANS, _MOST_NAMED = 1000, 200, 8


@contextmanager
def connected(context: click.Context) -> Iterator[Client]:
    """A client of the target, connected. Raises StoreUnavailable within 3 s without a server.

    A group or topic that is not found may be in another namespace: the error names those there are.
    """
    target = target_of(context)
    target.settings()
    with Client(target.url, namespace=target.namespace) as client:
        reach(parts_of(client).store)
        try:
            yield client
            _note_moved(client)
        except (GroupNotFound, TopicNotFound) as error:
            raise type(error)(f"{error}{elsewhere(client)}") from None


def _note_moved(client: Client) -> None:
    """Say what a command that reads has moved, because it was due and nobody had done it."""
    moved = {
        verb: count for verb, count in parts_of(client.admin).operations.moved.items() if count
    }
    if moved:
        listed = ", ".join(f"{count} {verb}" for verb, count in moved.items())
        note(f"first moved what was due in what was read: {listed}")


def print_all(
    client: Client, key: str, records: Sequence[Any], table: Cells, none: str, *, as_json: bool
) -> None:
    """What the namespace has of one sort; with nothing, a note that it has no such thing."""
    namespace = parts_of(client).settings.namespace
    if not records:
        note(f"namespace {namespace} has no {none}{elsewhere(client)}")
    print_list({"namespace": namespace}, key, records, table, as_json=as_json)


def elsewhere(client: Client) -> str:
    """The end of a sentence: the other namespaces that hold topics; "" if there are none."""
    own = parts_of(client).settings.namespace
    try:
        found = sorted(_namespaces(parts_of(client).store) - {own})
    except RqretryError:  # a hint; without the right to SCAN there is none
        return ""
    if not found:
        return ""
    more = ", ..." if len(found) > _MOST_NAMED else ""
    named = ", ".join(found[:_MOST_NAMED])
    return f"; this server has topics in the namespaces {named}{more}: choose with --namespace"


def _namespaces(store: SyncStore) -> set[str]:
    found: set[str] = set()
    for url in store.servers():
        with SyncStore(url, store.topology.scripts, repeat_seconds=store.repeat_seconds) as one:
            cursor = b"0"
            for _ in range(_MOST_SCANS):
                cursor, keys = one.run(_scan(cursor))
                matches = (_CATALOG.fullmatch(key.decode(errors="replace")) for key in keys)
                found |= {match[1] for match in matches if match}
                if cursor == b"0":
                    break
    return found


def _scan(cursor: bytes) -> Command[tuple[bytes, list[bytes]]]:
    arguments = ("SCAN", cursor, "MATCH", "rqretry:*:{*}:topics", "COUNT", _SCAN_COUNT)
    return Command("scan", (), (), lambda reply: (reply[0], reply[1]), arguments=arguments)
