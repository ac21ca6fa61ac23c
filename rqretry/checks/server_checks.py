"""The checks of doctor on every server that a URL stands for, before a worker works there."""

import logging
from dataclasses import replace

from rqretry.checks.check_result import Finding
from rqretry.checks.doctor import check, refused
from rqretry.checks.replica_checks import membership
from rqretry.core.errors import StoreUnavailable, UnsafeServer
from rqretry.core.redis_url import RedisUrl
from rqretry.transport.store_sync import SyncStore, reach

log = logging.getLogger("rqretry")


def examine(store: SyncStore, namespace: str) -> list[Finding]:
    """Look at the server, at the primary that Sentinels name, or at each primary of a cluster.

    Raises:
        StoreUnavailable: One of them cannot be reached.
    """
    library, deployment = store.topology.scripts, store.url.deployment
    if deployment == "single":
        return store.perform(check(library, namespace))
    servers = store.servers()
    findings = [membership(store.url, servers)]
    for url in servers:
        patience = store.repeat_seconds
        with SyncStore(url, library, repeat_seconds=patience) as one:
            found = one.perform(check(library, namespace, deployment))
        findings += [replace(f, sentence=f"{url.address}: {f.sentence}") for f in found]
    return findings


def examine_before_work(
    store: SyncStore, namespace: str, *, strict: bool = False, embedded: bool = False
) -> list[Finding] | None:
    """Examine a server before work is begun; what is to be said, or None if it is not there yet.

    Args:
        store: It.
        namespace: Where the work is.
        strict: Warnings are refused, too.
        embedded: It is private, and meant to be forgotten: there are no warnings.

    Raises:
        UnsafeServer: Messages could be lost there.
    """
    try:
        reach(store)
        findings = examine(store, namespace)
    except StoreUnavailable:
        return None
    findings = [f for f in findings if not (embedded and f.severity == "warning")]
    if bad := refused(findings, strict=strict):
        reasons = "; ".join(f"{finding.sentence}: {finding.fix}" for finding in bad)
        raise UnsafeServer(f"Redis at {store.url.address} is not safe for a queue: {reasons}")
    return findings


def require_safe_server(url: RedisUrl, namespace: str) -> None:
    """Examine a server before a worker that another program embeds; what is weak is logged.

    Raises:
        UnsafeServer: Messages could be lost there.
    """
    with SyncStore(url) as store:
        for finding in examine_before_work(store, namespace) or ():
            if finding.severity == "warning":
                log.warning("%s: %s", finding.sentence, finding.fix)
