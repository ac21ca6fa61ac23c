"""The checks of doctor for Sentinels and clusters: replicas, fencing, slots, the URL."""

from collections.abc import Mapping, Sequence

from rqretry.checks.check_result import Finding
from rqretry.core.redis_url import RedisUrl

SLOTS = 16384
FEWEST_SENTINELS = 3


def replicas(info: Mapping[str, str]) -> Finding:
    """Whether a replica can take over."""
    count = int(info.get("connected_slaves", "0"))
    if count:
        return Finding("replicas", "ok", f"{count} replicas follow")
    text = "no replica follows: if this server is lost, so is its data"
    return Finding("replicas", "warning", text, "add a replica")


def fencing(info: Mapping[str, str]) -> Finding:
    """Whether a primary that is cut off from its replicas stops accepting writes."""
    if "min_slaves_good_slaves" in info:
        return Finding("fencing", "ok", "min-replicas-to-write is set")
    text = (
        "min-replicas-to-write is not set: a primary that is cut off keeps accepting messages"
        " that the failover then loses"
    )
    fix = "set min-replicas-to-write 1 and min-replicas-max-lag 2, or publish with replica:1"
    return Finding("fencing", "warning", text, fix)


def slots(info: Mapping[str, str]) -> Finding:
    """Whether the cluster, as this node sees it, serves every slot."""
    state, served = info.get("cluster_state", "?"), int(info.get("cluster_slots_ok", "0"))
    if state == "ok" and served == SLOTS:
        return Finding("slots", "ok", f"the cluster is up, and all {SLOTS} slots are served")
    text = f"the cluster is {state}, and {served} of {SLOTS} slots are served"
    fix = "check CLUSTER NODES; restart failed primaries, or fail over to a replica"
    return Finding("slots", "refused" if state != "ok" else "warning", text, fix)


def membership(url: RedisUrl, nodes: Sequence[RedisUrl]) -> Finding:
    """Whether the URL names enough servers to find the rest when one is lost."""
    count = len(url.hosts)
    if url.deployment == "sentinel":
        if count >= FEWEST_SENTINELS:
            return Finding("sentinels", "ok", f"the URL names {count} Sentinels")
        text = (
            f"the URL names {count} Sentinels: fewer than {FEWEST_SENTINELS} cannot agree on a"
            " failover, or cannot be found when one is lost"
        )
        fix = f"run {FEWEST_SENTINELS} Sentinels and name all of them in the URL"
        return Finding("sentinels", "warning", text, fix)
    if count > 1 or len(nodes) == 1:
        return Finding("nodes", "ok", f"the URL names {count} nodes, {len(nodes)} primaries serve")
    text = "the URL names one node: when it is down at a start, the cluster is not found"
    return Finding("nodes", "warning", text, "name two or three nodes in the URL")
