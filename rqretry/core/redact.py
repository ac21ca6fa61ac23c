"""What must not be shown, taken out of what handlers raise and log.

It is one function of a process, as its logs and its tracing are: the default patterns, and behind
them what the last App named that gives `redact`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
_NAME = r"(?:pass(?:word|wd|phrase)|pwd|secret|api[_-]?key|(?:access|private|secret)[_-]?key|token)"
_SECRET_NAME = re.compile(rf"(?i)[\w-]*{_NAME}")
_PATTERNS = re.compile(
    rf"""(?ix)
    (?P<url> ://[^\s/:@?\#]*: ) [^\s/@]++ (?=@)                   # credentials in a URL
    | (?P<named> {_NAME}s?["']?\s*(?:=>?|:(?!/))\s* )
      (?: "[^"]+" | '[^']+' | [^\s"'\\,;&}}\])]+ )
    | (?P<scheme> \b(?:bearer|basic)\s++ ) (?=[^\s"']*[\d=]) [\w.~+/=-]{{8,}}
    | (?P<token> \b(?:gh[pousr]_ | github_pat_ | xox[abprs]- | [sr]k_(?:live|test)_ | AKIA | eyJ) )
      [\w.-]{{12,}}
    """
)
"""What is before a secret, in a group of its own, and the secret. It begins with no run of any
length: searching a text takes time in proportion to it, whatever handlers raise."""
_HINTS = (
    "://", "pass", "pwd", "secret", "key", "token", "bearer", "basic", "ghp_", "gho_", "ghu_",
    "ghs_", "ghr_", "github_", "xox", "_live_", "_test_", "akia", "eyj",
)  # fmt: skip
"""Without one of these there is none; to look for them takes a tenth of the time."""

Redact = Callable[[str], str]
_chosen: list[Redact] = []


def use(redact: Redact) -> None:
    """Have this process redact with this function, too."""
    _chosen[:] = [redact]


def by_patterns_alone() -> bool:
    """Whether equal texts are redacted alike: nobody has named a function."""
    return not _chosen


def redacted(text: str) -> str:
    """The text without secrets; a function that fails leaves nothing of it."""
    lowered = text.lower()
    if any(hint in lowered for hint in _HINTS):
        text = _PATTERNS.sub(_hidden, text)
    for redact in _chosen:
        try:
            text = str(redact(text))
        except Exception as error:  # noqa: BLE001 - it must neither show the text nor stop an attempt
            text = f"[redact raised {type(error).__name__}]"
    return text


def redacted_value(name: str, value: Any) -> Any:
    """A named value of a log record, which JSON will hold, without secrets."""
    if _SECRET_NAME.fullmatch(name):
        return HIDDEN
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_value(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_value("", each) for each in value]
    return value


def _hidden(found: re.Match[str]) -> str:
    return f"{found[found.lastgroup or 0]}{HIDDEN}"
