"""What a supervisor keeps of a worker process that nobody told to end: how it ended.

A message that takes its process down leaves no error, only a lease that expires. Who held the
lease is in the history; how that process ended is known to its parent alone, who writes it down.
"""

import logging
import threading

from rqretry.core.errors import RqretryError
from rqretry.core.settings import Settings
from rqretry.core.worker_name import process_name
from rqretry.protocol.audit_log import last_words
from rqretry.protocol.keys import NamespaceKeys
from rqretry.transport.store_sync import SyncStore

log = logging.getLogger("rqretry")

PATIENCE_S = 5.0
_AT_ONCE = 4


class LastWords:
    """Writes last words in threads, so that a server that is away holds up no restart."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._room = threading.BoundedSemaphore(_AT_ONCE)

    def keep(self, pid: int, said: str) -> None:
        """Keep how a process ended, if the server can be reached; returns at once.

        Args:
            pid: The process.
            said: How it ended, such as "ended with SIGKILL".
        """
        if self._room.acquire(blocking=False):
            threading.Thread(
                target=self._write, args=(pid, said), name="rqretry-last-words", daemon=True
            ).start()

    def _write(self, pid: int, said: str) -> None:
        keys = NamespaceKeys(self._settings.namespace)
        try:
            with SyncStore(self._settings.url, repeat_seconds=PATIENCE_S) as store:
                store.run(last_words(keys, process=process_name(pid), said=said))
        except RqretryError as error:
            log.warning("how worker process %d ended was not kept: %s", pid, error)
        finally:
            self._room.release()
