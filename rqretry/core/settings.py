"""Settings: from an argument, else from the environment, else the default.

The only module that reads os.environ.
"""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from rqretry.core.delay_levels import LevelTable
from rqretry.core.durations import Duration
from rqretry.core.errors import ConfigError, show
from rqretry.core.limits import check_namespace
from rqretry.core.redis_url import RedisUrl

DEFAULT_URL = "redis://localhost:6379/0"
DEFAULT_NAMESPACE = "default"
URL_VARIABLE = "RQRETRY_REDIS_URL"
NAMESPACE_VARIABLE = "RQRETRY_NAMESPACE"
LEVELS_VARIABLE = "RQRETRY_DELAY_LEVELS"
TOKEN_VARIABLE = "RQRETRY_DASHBOARD_TOKEN"  # noqa: S105 - the name of the variable
TRACE_URL_VARIABLE = "RQRETRY_TRACE_URL"
_PREFIX = "RQRETRY_"
VARIABLES = (
    URL_VARIABLE, NAMESPACE_VARIABLE, LEVELS_VARIABLE, TOKEN_VARIABLE, TRACE_URL_VARIABLE,
)  # fmt: skip
_OF_KUBERNETES = re.compile(r".*_SERVICE_(HOST|PORT\w*)|.*_PORT(_[0-9]+_\w+)?")
"""What a pod finds in its environment when a service has a name that begins with rqretry."""
_ALIKE = 0.8

log = logging.getLogger("rqretry")


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
            ConfigError: The URL is malformed, or a variable's name misspelt.
            InvalidArgument: The namespace or the level table is outside its limits.
        """
        check_variables()
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


def named_by(option: str | None, code: str | None) -> str:
    """Where the URL was named: the first of the option, the code, the environment, the default."""
    variable = os.environ.get(URL_VARIABLE)
    if option is None and code is None:
        return "the default" if variable is None else URL_VARIABLE
    named = "the code" if option is None else "--url"
    unused = variable not in (None, code if option is None else option)
    return f"{named}, so {URL_VARIABLE} is not used" if unused else named


def check_variables() -> None:
    """Name each variable that begins with RQRETRY_ and means nothing: it may be misspelt.

    Raises:
        ConfigError: It is nearly one that does.
    """
    for name in os.environ:
        if name.startswith(_PREFIX) and name not in VARIABLES:
            _refuse_variable(name)


@cache
def _refuse_variable(name: str) -> None:
    """Refuse a name that is nearly right; warn once of any other."""
    short = {known.removeprefix(_PREFIX): known for known in VARIABLES}
    text = name.removeprefix(_PREFIX).upper()
    near = get_close_matches(text, short, 1, _ALIKE) or [s for s in short if text and text in s]
    if near:
        raise ConfigError(
            f"the environment variable {show(name)} means nothing to rqretry: did you mean"
            f" {short[near[0]]}?"
        )
    if not _OF_KUBERNETES.fullmatch(name):
        known = ", ".join(VARIABLES)
        log.warning("environment variable %s means nothing: known are %s", show(name), known)


def variable(name: str) -> str | None:
    """An environment variable that another standard defines, such as OTEL_*; "" counts as unset."""
    return os.environ.get(name) or None
