"""The receipt of a lease: what a message is settled by."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """One lease of one message: only the newest `lease_no` can settle it."""

    id: str
    lease_no: int
