"""What an object is made of, for the packages that work on it: completion offers users none of it.

An App, a Client and what else users hold keep their parts under one name with an underscore, and
`parts_of` is how the rest of rqretry gets at them.
"""

from typing import Protocol, TypeVar

P_co = TypeVar("P_co", covariant=True)


class HasParts(Protocol[P_co]):
    """What users hold, as those see it that know what it is made of."""

    @property
    def _parts(self) -> P_co: ...


def parts_of(owner: HasParts[P_co]) -> P_co:
    """The parts of an App, a client, or what else has some."""
    return owner._parts  # noqa: SLF001 - the one place that looks behind the underscore
