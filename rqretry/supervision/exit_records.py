"""How a worker process ended that nobody asked to stop, as the supervisor records it.

A message that crashes its process leaves no error, only a lease that expires. Who held the lease
is in the history; how that process ended is known to its parent alone, which records it.
"""

import logging
import threading

from rqretry.core.errors import RqretryError
from rqretry.core.settings import Settings
from rqretry.core.worker_name import process_name
from rqretry.protocol.audit_log import exit_record
from rqretry.protocol.keys import NamespaceKeys
from rqretry.transport.store_sync import SyncStore

log = logging.getLogger("rqretry")

PATIENCE_S = 5.0
_AT_ONCE = 4


class ExitRecords:
    """Writes exit records in threads, so that an unreachable server holds up no restart."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._slots = threading.BoundedSemaphore(_AT_ONCE)

    def write(self, pid: int, ending: str) -> None:
        """Record how a process ended, if the server can be reached; returns at once.

        Args:
            pid: The process.
            ending: How it ended, such as "ended with SIGKILL".
        """
        if self._slots.acquire(blocking=False):
            threading.Thread(
                target=self._write, args=(pid, ending), name="rqretry-exit-record", daemon=True
            ).start()

    def _write(self, pid: int, ending: str) -> None:
        keys = NamespaceKeys(self._settings.namespace)
        try:
            with SyncStore(self._settings.url, repeat_seconds=PATIENCE_S) as store:
                store.run(exit_record(keys, process=process_name(pid), ending=ending))
        except RqretryError as error:
            log.warning("how worker process %d ended was not recorded: %s", pid, error)
        finally:
            self._slots.release()
