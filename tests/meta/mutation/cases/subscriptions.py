"""Subscriptions that instances of a group disagree about."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import LuaLine, Symbol
from tests.meta.mutation.cases.common import always, case

OTHER_TAGS = "tests/contract/integration/test_other_tags.py::"
DISAGREE = f"{OTHER_TAGS}test_instances_that_disagree_warn_each_other_and_the_operator[redis-7-1]"


def undated(original: Any) -> Any:
    """Nobody knows who changed the tags, and when."""

    def changed(self: Any, by: str, at_ms: int, **fields: Any) -> Any:
        kept = {n: v for n, v in fields.items() if n not in {"tags_by", "tags_at_ms"}}
        return original(self, by, at_ms, **kept)

    return changed


def of_any_byte(original: Any) -> Any:
    """A group leaves the route, whichever membership was meant."""
    return lambda self, group, _byte: original(self, group, self.byte_of(group))


def asked(**changes: Any) -> Any:
    """A consumer that joins asks for something else."""

    def make(original: Any) -> Any:
        return lambda self, old, wish, *rest, **named: original(
            self, old, replace(wish, **changes), *rest, **named
        )

    return make


TOPICS_AND_GROUPS = "tests/contract/integration/test_topics_and_groups.py::"
NEXT_ONE = "tests/lua/test_leave.py::test_what_ended_a_membership_does_nothing_in_the_next_one"
ENDS = {"leave": 2, "purge": 3, "purge_blocked": 3, "purge_list": 4}


CASES = (
    case("R63", "instances do not hear of other tags",
         Symbol("worker:_warn_of_tags", always(None)), DISAGREE),
    case("R63", "the start that changes tags does not say so",
         Symbol("catalog:warn_of_tags", always(None)), DISAGREE),
    case("R63", "operators do not see who named other tags",
         Symbol("Live.other_tags", always(())), DISAGREE),
    case("R63", "a change of tags is not dated", Symbol("GroupRecord.changed", undated), DISAGREE),
    case("R64", "a group is taken out of the route although it has joined again",
         Symbol("TopicRecord.without_group", of_any_byte),
         "tests/lua/test_two_leaves.py::"
         "test_a_slower_leave_takes_nothing_from_a_group_that_has_joined_again"),
    *(case("R64", f"{script} does not ask which membership is meant",
           LuaLine(script, f"ARGV[{at}] = ''"), f"{NEXT_ONE}[redis-7-{script}]")
      for script, at in ENDS.items()),
    case("R144", "a group that is made anew has the settings of any group",
         Symbol("Subscriptions._joined", asked(settings={})),
         f"{TOPICS_AND_GROUPS}"
         "test_a_worker_whose_server_lost_everything_joins_again_as_it_was_declared"
         "[redis-7-supervised]"),
    case("R144", "a worker that joins again undoes what operators have set",
         Symbol("Subscriptions._joined", asked(explicit=True)),
         f"{TOPICS_AND_GROUPS}"
         "test_a_worker_that_joins_again_leaves_a_group_that_is_there_as_operators_have_set_it"
         "[redis-7]"),
)  # fmt: skip
