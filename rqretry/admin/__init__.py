"""The operator's verbs, without I/O: what is where, why, and moving it (design.md section 3)."""

from rqretry.admin.arranging import CatalogVerbs, group_settings
from rqretry.admin.checking import CheckingVerbs
from rqretry.admin.letters import LetterVerbs
from rqretry.admin.looking import LookingVerbs
from rqretry.admin.moving import MovingVerbs
from rqretry.admin.transactions import TransactionVerbs

__all__ = ["AdminOperations", "group_settings"]


class AdminOperations(
    CatalogVerbs, LookingVerbs, LetterVerbs, MovingVerbs, TransactionVerbs, CheckingVerbs
):
    """Every admin verb, once; served to asyncio and sync code by the facades of client.py."""
