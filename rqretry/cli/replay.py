"""rqretry dlq replay: run the real handler on a dead letter locally, settling nothing."""

import asyncio
import pdb  # noqa: T100 - the debugger is what --pdb asks for
import time
import traceback
from typing import Any, NamedTuple

import click

from rqretry.app import App
from rqretry.cli.output import clean, note
from rqretry.cli.replay_test import write_test
from rqretry.cli.session import connected
from rqretry.client import Client
from rqretry.consumer.registry import ConsumerSpec
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import ConfigError, MessageNotFound, RqretryError, show
from rqretry.core.parts import parts_of
from rqretry.protocol.inspect import Peeked, peek
from rqretry.protocol.keys import GroupKeys
from rqretry.supervision.app_loader import load_app, require_consumers
from rqretry.worker.dry_run import DryRun, dry_run, spec_for
from rqretry.worker.leases import Delivery, LeasedPlace


class Found(NamedTuple):
    """A dead letter as its last attempt got it."""

    dead_letter: DeadLetterRecord
    keys: GroupKeys
    lease_no: int
    last_error: str
    max_retries: int


def replayed(context: click.Context, given: dict[str, Any]) -> int:
    """Run the handler, or write the test; the exit status."""
    if given["with_pdb"] and given["as_test"] is not None:
        raise click.UsageError("--pdb and --as-test do different things: keep one")
    app = load_app(given["app"], given["app_dir"])
    require_consumers(app, given["app"], given["app_dir"])
    with connected(context) as client:
        found = _find(client, given["group"], given["id_"])
    spec = _spec(app, found.dead_letter, given["app"])
    if given["as_test"] is not None:
        write_test(given["as_test"], found.dead_letter, given["app"], given["app_dir"])
        note(f"written: pytest {given['as_test']} runs {_name(spec)} on it")
        return 0
    return _run(app, spec, found, with_pdb=given["with_pdb"])


def find_dead_letter(client: Client, group: str, id_: str) -> DeadLetterRecord:
    """One dead letter, with its body. Raises MessageNotFound."""
    for dead_letter in client.admin.dead_letters(group, ids=[id_]):
        return dead_letter
    raise MessageNotFound(
        f"group {show(group)} has no dead letter {show(id_)}; see rqretry message {id_}"
    )


def _find(client: Client, group: str, id_: str) -> Found:
    dead_letter, view = find_dead_letter(client, group, id_), client.admin.message(id_)
    catalog, store = parts_of(client).catalog, parts_of(client).store
    keys = catalog.group_keys(dead_letter.topic, view.partition, group)
    seen: Peeked = store.run(peek(keys, id_))
    # The delivery state has the number of the next lease; the last line is of the last attempt.
    lease_no = int(seen.delivery_state.partition(":")[0] or 2) - 1 if seen.delivery_state else 1
    lines = seen.failures.splitlines()
    record = store.perform(catalog.groups.get(group))
    return Found(
        dead_letter, keys, lease_no, lines[-2] if len(lines) > 1 else "", record.max_retries
    )


def _spec(app: App, dead_letter: DeadLetterRecord, target: str) -> ConsumerSpec:
    spec = spec_for(parts_of(app).consumers, dead_letter.group, dead_letter.topic)
    if spec is None:
        known = ", ".join(
            sorted({f"{s.group} of {t}" for s in parts_of(app).consumers for t in s.topics})
        )
        raise ConfigError(
            f"{target} has no handler of group {show(dead_letter.group)} for topic"
            f" {show(dead_letter.topic)}; it has {known}"
        )
    return spec


def _run(app: App, spec: ConsumerSpec, found: Found, *, with_pdb: bool) -> int:
    dead_letter, keys = found.dead_letter, found.keys
    place = LeasedPlace(
        dead_letter.topic, keys.partition.partition, keys, spec.visibility_ms / 1000
    )
    numbers = (found.lease_no, dead_letter.attempt)
    now = time.monotonic()
    delivery = Delivery(place, dead_letter.id, dead_letter.raw, numbers, now, found.last_error)
    ended = asyncio.run(_dry_run(app, spec, delivery, found.max_retries))
    _print(spec, dead_letter, ended)
    if ended.error is None:
        return 0 if ended.outcome == "success" else 1
    if with_pdb:
        pdb.post_mortem(ended.error.__traceback__)
    else:
        text = "".join(traceback.format_exception(ended.error))
        for line in text.splitlines():
            click.echo(clean(line), err=True)
    return 1


async def _dry_run(app: App, spec: ConsumerSpec, delivery: Delivery, most: int) -> DryRun:
    ended: DryRun | None = None
    try:
        async with parts_of(app).living():
            ended = await dry_run(parts_of(app).hooks, spec, delivery, most)
    except RqretryError:
        raise
    except Exception as error:
        when = "starts" if ended is None else "ends"
        raise ConfigError(
            f"the lifespan of the app failed where it {when}: {type(error).__name__}: {error}"
        ) from error
    return ended


def _print(spec: ConsumerSpec, dead_letter: DeadLetterRecord, ended: DryRun) -> None:
    reason = f": {ended.reason}" if ended.reason else ""
    what = f"{_name(spec)} on message {dead_letter.id}, attempt {dead_letter.attempt}"
    click.echo(clean(f"{what}: {ended.outcome}{reason} ({ended.seconds:.3f} s, nothing settled)"))
    if ended.outcome != "success":
        same = (
            "as when it died"
            if ended.reason == dead_letter.error
            else f"it died of {dead_letter.error}"
        )
        click.echo(clean(same))


def _name(spec: ConsumerSpec) -> str:
    return getattr(spec.handler, "__qualname__", show(spec.handler))
