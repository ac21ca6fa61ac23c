"""What was meant where a name is nearly right: of a command, an option, an argument."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question such as "; did you mean publish?", or nothing."""
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""
