"""The job; rq finds it by its module's name."""

from typing import Any

import peer


def work(message: dict[str, Any]) -> None:
    """The handler."""
    peer.saw(message)
