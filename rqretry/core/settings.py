"""Settings: from an argument, else from the environment, else the default.

The only module that reads os.environ.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from rqretry.core.delay_levels import LevelTable
from rqretry.core.durations import Duration
from rqretry.core.limits import check_namespace
from rqretry.core.redis_url import RedisUrl

DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_NAMESPACE = "default"
URL_VARIABLE = "RQRETRY_REDIS_URL"
NAMESPACE_VARIABLE = "RQRETRY_NAMESPACE"
LEVELS_VARIABLE = "RQRETRY_DELAY_LEVELS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client needs to know.

    Attributes:
        url: The server.
        namespace: Topics and groups of one namespace do not see those of another.
        levels: The requested delay level table, or None for the namespace's own.
    """

    url: RedisUrl
    namespace: str
    levels: LevelTable | None

    @staticmethod
    def read(
        url: str | RedisUrl | None = None,
        namespace: str | None = None,
        delay_levels: str | Sequence[Duration] | None = None,
    ) -> "Settings":
        """Take from the environment what is not given.

        The variables are RQRETRY_REDIS_URL, RQRETRY_NAMESPACE and RQRETRY_DELAY_LEVELS.

        Raises:
            ConfigError: The URL is malformed.
            InvalidArgument: The namespace or the level table is outside its limits.
        """
        if url is None:
            url = os.environ.get(URL_VARIABLE, DEFAULT_URL)
        if namespace is None:
            namespace = os.environ.get(NAMESPACE_VARIABLE, DEFAULT_NAMESPACE)
        levels = delay_levels if delay_levels is not None else os.environ.get(LEVELS_VARIABLE)
        return Settings(
            url if isinstance(url, RedisUrl) else RedisUrl.parse(url),
            check_namespace(namespace),
            None if levels is None else LevelTable.parse(levels),
        )


def variable(name: str) -> str | None:
    """An environment variable that another standard defines, such as OTEL_*; "" counts as unset."""
    return os.environ.get(name) or None
