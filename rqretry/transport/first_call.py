"""The first call to a server: it fails fast, while every later one is patient."""

from rqretry.transport.replies import REPEAT_SECONDS
from rqretry.transport.store_sync import SyncStore

CONNECT_SECONDS = 1.2
"""How long one attempt to connect takes at most; with its repetition, a user waits 3 s."""
FIRST_REPEAT_SECONDS = 0.8
REPLY_SECONDS = 5.0


def reach(store: SyncStore) -> None:
    """Connect. Raises StoreUnavailable within 3 s without a server."""
    pool = store.pool
    pool.connect_seconds = min(pool.connect_seconds, CONNECT_SECONDS)
    pool.reply_seconds = min(pool.reply_seconds, REPLY_SECONDS)
    store.repeat_seconds = FIRST_REPEAT_SECONDS
    store.connect()
    store.repeat_seconds = REPEAT_SECONDS
