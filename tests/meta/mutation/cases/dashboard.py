"""The dashboard, R107 and R108."""

from typing import Any

from tests.meta.mutation.case import Constant, Symbol, answers
from tests.meta.mutation.cases.common import always, case

INCIDENTS = "tests/unit/admin/test_incidents.py::"
LIVE = "tests/edges/dashboard/test_live.py::"


def everything(original: Any) -> Any:
    """A selection is forgotten: all dead letters are meant."""
    return lambda fields: original({n: v for n, v in fields.items() if n not in ("id", "chosen")})


def announced_first(original: Any) -> Any:
    """The pages are not there yet."""

    async def startup(self: Any, sockets: Any = None) -> None:
        self._started()
        await original(self, sockets)

    return startup


def of_all(_original: Any) -> Any:
    """Groups times workers."""

    def serves(self: Any, group: str, topic: str) -> bool:
        abouts = [about for some in self._by_group.values() for about in some]
        return any(about.serves(group, topic) for about in abouts)

    return serves


CASES = (
    case("R107", "a page is red later than its alert", Constant("admin:BLOCKED_S", "600"),
         f"{INCIDENTS}test_the_alert_rules_have_the_same_names_severities_and_thresholds"),
    case("R107", "what has changed is not judged", Symbol("admin:_changes", always(())),
         f"{INCIDENTS}test_what_a_group_shows_by_its_change"),
    case("R108", "streams go on when the server ends", Symbol("Streams.close", always(None)),
         f"{LIVE}test_streams_are_bounded_and_end_with_their_reader_or_with_the_server"),
    case("R108", "each empty level is looked at", answers("EXISTS", "delay", "answer = 1", "stats"),
         "tests/lua/test_command_budget.py::"
         "test_the_numbers_of_a_group_for_which_nothing_waits_take_no_command_a_level"),
    case("R149", "an address is announced before there are numbers",
         Symbol("_Server.startup", announced_first),
         f"{LIVE}test_the_address_is_announced_when_the_first_page_has_its_numbers"),
    case("R149", "each group is asked of each worker", Symbol("Live.serves", of_all),
         "tests/unit/admin/test_statistics.py::"
         "test_whether_a_group_is_served_is_asked_of_its_own_workers"),
    case("R108", "what was chosen is forgotten", Symbol("dashboard:choice_of", everything),
         "tests/edges/dashboard/test_lists.py::"
         "test_a_selection_of_dead_letters_is_sent_back_and_is_on_record",
         "tests/edges/dashboard/test_lists.py::test_chosen_messages_are_retried_now_or_cancelled"),
)  # fmt: skip
