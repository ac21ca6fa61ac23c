"""The operators' API, without I/O: queries, settings, dead letters, and moving messages."""

from rqretry.admin.consistency import ConsistencyAdmin
from rqretry.admin.dead_letters import DeadLetterAdmin
from rqretry.admin.promote_purge_reset import MoveAdmin
from rqretry.admin.queries import QueryAdmin
from rqretry.admin.topics_and_groups import TopicAndGroupAdmin, group_settings
from rqretry.admin.transactions import TransactionAdmin

__all__ = ["AdminOperations", "group_settings"]


class AdminOperations(
    TopicAndGroupAdmin, QueryAdmin, DeadLetterAdmin, MoveAdmin, TransactionAdmin, ConsistencyAdmin
):
    """Every admin operation, once; `facades.py` offers them to sync and asyncio code."""
