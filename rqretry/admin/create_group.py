"""Create a group before its first consumer starts, such as one of another language."""

from collections.abc import Sequence
from typing import Any

from rqretry.admin.context import AdminContext
from rqretry.catalog.group_rules import group_settings, in_words
from rqretry.core.catalog_records import PUSH, SIMPLE
from rqretry.core.errors import refuse
from rqretry.core.limits import check_flag, check_group, check_sources, check_tags
from rqretry.core.retry_policy import RetryPolicy
from rqretry.protocol.command import Operation


def create_group(
    context: AdminContext,
    group: str,
    topics: str | Sequence[str],
    kind: str = PUSH,
    *,
    max_retries: int | str | None = None,
    policy: RetryPolicy | str | None = None,
    tags: str | None = None,
    ordered: bool | None = None,
) -> Operation[None]:
    """Create a group, or subscribe the existing one to more topics.

    Workers and programs with create_group=True make their own; clients of the gateway do not.

    Args:
        group: The group's name.
        topics: The topics that it consumes.
        kind: "push" (of workers; the default) or "simple" (of simple consumers).
        max_retries: 0 or more, or "unlimited"; default 16, of an ordered group "unlimited".
        policy: A RetryPolicy, or its text such as "ladder:10s 30s"; default RocketMQ's ladder. A
            simple group has none.
        tags: What it takes of these topics, such as "a || b"; default everything.
        ordered: Whether it gets one message of a message group at a time; for good. Default False.

    Raises:
        TopicNotFound: A topic is not there.
        InvalidArgument: A value is outside its limits.
        ConfigError: The group is there and of another kind.
    """
    names = check_sources(topics)
    if kind not in (PUSH, SIMPLE):
        refuse("kind", kind, f'must be "{PUSH}" or "{SIMPLE}"')
    if kind == SIMPLE and policy is not None:
        refuse("policy", str(policy), "is for push groups: in a simple one the invisible duration"
               " of each receive is the wait")  # fmt: skip
    wish: dict[str, Any] = group_settings(max_retries, policy)
    if tags is not None:
        wish["tags"] = check_tags(tags)
    if ordered is not None:
        wish["ordered"] = check_flag("ordered", ordered)
    checked = check_group(group)
    yield from context.catalog.join(checked, kind, names, create_topics=False, **wish)
    about = {"group": checked, "topics": " ".join(names), "kind": kind}
    yield from context.audit("create_group", about | in_words(wish))
