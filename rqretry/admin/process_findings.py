"""What `rqretry doctor` says of the processes of a namespace: who does its upkeep, and versions."""

from collections.abc import Sequence

from rqretry.admin.context import AdminContext
from rqretry.admin.incidents import incidents, other_version
from rqretry.admin.queries import workers
from rqretry.admin.statistics import gather_stats
from rqretry.checks.check_result import Finding
from rqretry.core.errors import RqretryError
from rqretry.maintenance.due import Due
from rqretry.protocol.command import Operation
from rqretry.protocol.keys import PartitionKeys


def process_findings(context: AdminContext) -> Operation[list[Finding]]:
    """One finding on upkeep and one on versions; what is due is looked at, and not moved."""
    try:
        return [(yield from _upkeep(context)), (yield from _versions(context))]
    except RqretryError as error:
        return [Finding("processes", "ok", f"not checked: {error}")]


def _upkeep(context: AdminContext) -> Operation[Finding]:
    topics = yield from context.topics_of(None, None)
    abouts = [worker.about for worker in (yield from context.live())]
    stats = yield from gather_stats(context.catalog, topics, None, abouts, _leave)
    late = [one for one in incidents(stats) if one.name == "UpkeepMissing"]
    if not late:
        return Finding("upkeep", "ok", "what is due is moved")
    worst = late[0]
    text = f"group {worst.group} of topic {worst.topic}: {worst.text}"
    fix = "start a worker of the group, or rqretry reaper; restart one that is stuck"
    return Finding("upkeep", "warning", text, fix)


def _versions(context: AdminContext) -> Operation[Finding]:
    live = yield from workers(context)
    differ = other_version(live)
    if differ is None:
        text = "1 live worker" if len(live) == 1 else f"{len(live)} live workers, of one version"
        return Finding("versions", "ok", text)
    return Finding("versions", "warning", differ.text, "finish the upgrade, or take it back")


def _leave(_due: Sequence[Due], _scheduled: Sequence[PartitionKeys]) -> Operation[bool]:
    """Move nothing."""
    yield from ()
    return False
