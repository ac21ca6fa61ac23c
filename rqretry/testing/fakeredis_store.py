"""The same store on fakeredis, for tests without any server. Imported only when it is used."""

import threading
from collections.abc import Sequence
from typing import Any

import fakeredis
from redis.exceptions import ResponseError

from rqretry.core.redis_url import RedisUrl
from rqretry.protocol.scripts import Dialect, ScriptLibrary
from rqretry.testing.lab_stores import LabStore
from rqretry.transport.batch import Batch

_PLACE = "redis://fakeredis:6379/0"
"""Shown in errors; nothing is opened."""


class FakeStore(LabStore):
    """Calls that never leave the process."""

    def __init__(self, library: ScriptLibrary) -> None:
        server = fakeredis.FakeServer(version=(6, 2))
        self._fake: Any = fakeredis.FakeStrictRedis(server=server)
        self._fake.response_callbacks.clear()  # replies as the other stores get them
        self._one_at_a_time = threading.RLock()
        super().__init__(RedisUrl.parse(_PLACE), library)

    def shut(self) -> None:
        """Let fakeredis go."""
        self._fake.close()

    def _prepare(self) -> None:
        self.wire.dialect = Dialect.LEGACY

    def _attempt(self, batch: Batch) -> None:
        with self._one_at_a_time:
            for share in batch.shares(self.topology):
                replies = [self._call(words) for words in share.requests()]
                again = [self._call(words) for words in share.unknown(replies)]
                batch.settle(self.topology, share, share.merge(replies, again))
        batch.check()

    def _call(self, words: Sequence[Any]) -> Any:
        try:
            return self._fake.execute_command(*words)
        except ResponseError as error:
            return error
