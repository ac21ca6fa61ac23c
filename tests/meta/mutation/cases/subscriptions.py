"""Subscriptions that instances of a group disagree about."""

from typing import Any

from tests.meta.mutation.case import Symbol
from tests.meta.mutation.cases.common import always, case

OTHER_TAGS = "tests/contract/integration/test_other_tags.py::"
DISAGREE = f"{OTHER_TAGS}test_instances_that_disagree_warn_each_other_and_the_operator[redis-7-1]"


def undated(original: Any) -> Any:
    """Nobody knows who changed the tags, and when."""

    def changed(self: Any, by: str, at_ms: int, **fields: Any) -> Any:
        kept = {n: v for n, v in fields.items() if n not in {"tags_by", "tags_at_ms"}}
        return original(self, by, at_ms, **kept)

    return changed


CASES = (
    case("R63", "instances do not hear of other tags",
         Symbol("worker:_warn_of_tags", always(None)), DISAGREE),
    case("R63", "the start that changes tags does not say so",
         Symbol("catalog:warn_of_tags", always(None)), DISAGREE),
    case("R63", "operators do not see who named other tags",
         Symbol("admin:_other_tags", always(())), DISAGREE),
    case("R63", "a change of tags is not dated", Symbol("GroupRecord.changed", undated), DISAGREE),
)  # fmt: skip
