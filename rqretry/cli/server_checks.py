"""The checks of doctor on every server that a URL stands for."""

from dataclasses import replace

from rqretry.checks.check_result import Finding
from rqretry.checks.doctor import check
from rqretry.checks.replica_checks import membership
from rqretry.transport.store_sync import SyncStore


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
