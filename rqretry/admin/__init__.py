"""The operator's verbs, without I/O: what is where, why, and moving it (design.md section 3)."""

from rqretry.admin.consistency import CheckingVerbs
from rqretry.admin.dead_letters import LetterVerbs
from rqretry.admin.promote_purge_reset import MovingVerbs
from rqretry.admin.queries import LookingVerbs
from rqretry.admin.topics_and_groups import CatalogVerbs, group_settings
from rqretry.admin.transactions import TransactionVerbs

__all__ = ["AdminOperations", "group_settings"]


class AdminOperations(
    CatalogVerbs, LookingVerbs, LetterVerbs, MovingVerbs, TransactionVerbs, CheckingVerbs
):
    """Every admin verb, once; served to asyncio and sync code by the facades of client.py."""
