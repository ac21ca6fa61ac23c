"""What operators rely on: verbs on much that is dead, and versions side by side."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.meta.mutation.case import Constant, Symbol, answers, drops
from tests.meta.mutation.cases.common import always, case

IDLE = "tests/edges/cli/test_idle_series.py::"
WAITING = "tests/contract/admin/test_waiting.py::"
MANY = "tests/contract/admin/test_many_dead_letters.py::"
VERSIONS = "tests/contract/integration/test_versions.py::"
DEAD_GROUPS = "tests/contract/integration/test_dead_groups.py::"
WRONG = "tests/contract/integration/test_what_callers_get_wrong.py::"
LAB = "tests/contract/testing/test_promises.py::"
FIRST = "tests/edges/cli/test_first_hour.py::"
PROGRESS = "tests/edges/cli/test_progress.py::"
COUNTS = "tests/lua/test_fingerprints.py::test_the_counts_are_exact_behind"


def with_no_end(original: Any) -> Any:
    """How many tasks there are is left out."""

    @contextmanager
    def tasks_done() -> Iterator[Any]:
        with original() as report:
            yield lambda done, _total: report(done, None)

    return tasks_done


def reading_all(original: Any) -> Any:
    """Ids are looked for among all dead letters."""

    def made(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self._rest = None

    return made


def all_at_once(original: Any) -> Any:
    """Everything is read before the first one is sent."""
    return lambda self, _count: original(self, 10**9)


def changed_alone(_original: Any) -> Any:
    """What this version does not know is left out."""
    return lambda _stored, _known, changed: changed


def read_once(original: Any) -> Any:
    """The schema is read when a client opens."""

    def opened(self: Any) -> Any:
        if self.levels is not None:
            return self.levels
        return (yield from original(self))

    return opened


def all_or_nothing(_original: Any) -> Any:
    """One damaged record, and none can be read."""

    def everything(self: Any) -> Any:
        from rqretry.protocol import inspect

        stored = yield inspect.read_records(self._stored_in)
        return [self._decode(name, stored[name]) for name in sorted(stored)]

    return everything


def looking_only(_original: Any) -> Any:
    """Operators read, and leave what is due to others."""

    def nothing(_self: Any, *_due: Any) -> Any:
        yield from ()
        return False

    return nothing


def unasked(_original: Any) -> Any:
    """Operators do not ask who lives."""

    def nobody(_self: Any) -> Any:
        yield from ()
        return []

    return nobody


def said_once(original: Any) -> Any:
    """A topic that is not there is named, and no more."""

    def found(self: Any, group: str, topics: Any, *, create: bool) -> Any:
        for name in topics:
            if not name.startswith("%DLQ%"):
                yield from self.topics.get(name, create=create)
        return (yield from original(self, group, topics, create=create))

    return found


def unread(_original: Any) -> Any:
    """Nobody looks into the history for what is gone."""

    def never(*_args: Any) -> Any:
        yield from ()
        return False

    return never


def ordinary(_original: Any) -> Any:
    """An app in a lab has ordinary clients once it has closed its first ones."""

    def made(_self: Any, url: str, **options: Any) -> Any:
        from rqretry import Client

        return Client(url, **options)

    return made


def undeclared(original: Any) -> Any:
    """The supervisor makes topics as it likes."""
    return lambda settings, consumers, _declared: original(settings, consumers, {})


def trusting(original: Any) -> Any:
    """A server that comes back is the one that went."""

    def distrust(self: Any, node: Any, again: Any) -> Any:
        yield from original(self, node, again)
        node.greeted = True

    return distrust


def unheld(_original: Any) -> Any:
    """Nobody looks who has leased a message."""

    def nobody(*_args: Any) -> Any:
        yield from ()
        return {}

    return nobody


def as_they_are(original: Any) -> Any:
    """A group that comes back has its new counters at once."""

    def seen(group: Any, *args: Any, **options: Any) -> Any:
        known = original(group, *args, **options)
        known.held = group.counters
        return known

    return seen


def unsorted(_original: Any) -> Any:
    """Groups are shown as they come."""
    return lambda stats: stats


def by_group_alone(_original: Any) -> Any:
    """Who consumes anything for a group consumes all of its topics."""
    return lambda self, group, _topic: group in self.groups


CASES = (
    case("R102", "a chosen id has no age", answers("HEXISTS", "ids", "answer = 0", "stats"),
         "tests/lua/test_reading.py::test_stats_knows_how_old_the_first_of_each_state_is[redis-7]"),
    case("R102", "what waits on the ladder has no age", answers("ZRANGE", "delay", "answer = {}", "stats"),
         f"{WAITING}test_ages_are_of_whatever_is_not_done[redis-7]"),
    case("R103", "a group comes back with its new counters", Symbol("_seen", as_they_are),
         f"{IDLE}test_the_counters_of_a_group_that_comes_back_grow_from_what_they_were"),
    case("R103", "a page begins with any group", Symbol("worst_first", unsorted),
         "tests/edges/cli/test_watching.py::test_what_needs_somebody_is_first_and_the_rest_is_counted"),
    case("R101", "a page looks for as long as it takes", Constant("admin:_LOOKED_AT", "10**9"),
         f"{WAITING}test_a_page_looks_at_so_many_however_few_it_selects[redis-7]"),
    case("R101", "who holds a message is not looked for", Symbol("admin:holders_of", unheld),
         f"{WAITING}test_each_message_is_listed_in_its_state_with_why_it_waits[redis-7]"),
    case("R101", "what waits on a level counts for nothing", answers("ZCARD", "delay", "answer = 0", "reasons"),
         f"{WAITING}test_the_commonest_reasons_of_what_waits_with_one_message_each[redis-7]"),
    case("R15", "a server keeps its version for ever", Symbol("Session.distrust", trusting),
         f"{FIRST}test_scripts_are_loaded_again_after_the_server_was_replaced_by_an_older_one"),
    case("R57", "the supervisor makes topics with one partition", Symbol("apply_settings", undeclared),
         f"{FIRST}test_a_worker_makes_topics_as_they_are_declared"),
    case("R57", "failed attempts are not logged", Symbol("OutcomeReporter._log_retried", always(None)),
         f"{FIRST}test_failed_attempts_are_logged_and_folded"),
    case("R56", "clients of a second run are ordinary ones", Symbol("LabClients.client", ordinary),
         f"{LAB}test_ids_and_the_order_of_ties_are_the_same_in_every_run"),
    case("R56", "dead letters in a lab are kept for ever", Symbol("LabWorkers.forget", always(None)),
         f"{LAB}test_dead_letters_are_forgotten_in_virtual_time"),
    case("R55", "what is gone was never there", Symbol("_was_delivered", unread),
         f"{WRONG}test_recall_of_what_was_delivered_is_too_late_there_or_gone"),
    case("R55", "a topic that is not there comes without advice", Symbol("Catalog._found", said_once),
         f"{WRONG}test_a_topic_that_is_not_there_comes_with_what_to_do"),
    case("R45", "a worker of one topic serves all topics of its group",
         Symbol("About.serves", by_group_alone),
         f"{DEAD_GROUPS}test_a_worker_of_other_topics_serves_nothing_here"),
    case("R45", "operators leave what is due to others", Symbol("AdminContext.move_due", looking_only),
         f"{DEAD_GROUPS}test_numbers_count_the_dead_of_a_group_of_which_nobody_lives",
         f"{DEAD_GROUPS}test_one_message_of_such_a_group_is_shown_dead"),
    case("R45", "operators move what live workers serve", Symbol("AdminContext.live", unasked),
         f"{DEAD_GROUPS}test_what_live_workers_serve_is_left_to_them"),
    case("R35", "a dead letter is looked for among all", Symbol("DeadLetterPages.__init__", reading_all),
         f"{MANY}test_one_id_among_many_takes_five_calls"),
    case("R35", "all are read before the first is sent back", Symbol("DeadLettersInOrder.take", all_at_once),
         f"{MANY}test_all_are_sent_back_page_by_page"),
    case("R35", "what is sent back or purged stays counted", drops("ZREM", "fingerprints"), COUNTS),
    case("R35", "what dies is not counted", drops("ZADD", "fingerprints", "fail", "expire"), COUNTS),
    case("R36", "a change drops what a later version stored", Symbol("core:with_unknown", changed_alone),
         f"{VERSIONS}test_fields_of_a_later_version_survive_every_change"),
    case("R36", "a worker does not look at the schema", Symbol("Registration._note", always(None)),
         f"{VERSIONS}test_a_worker_stops_when_a_newer_version_takes_the_namespace"),
    case("R150", "nobody learns how many tasks there are", Symbol("tasks_done", with_no_end),
         f"{PROGRESS}test_the_tasks_of_a_spark_job_are_shown_with_how_many_there_are"),
    case("R36", "the schema is read once", Symbol("CatalogStore.open", read_once),
         f"{VERSIONS}test_a_simple_consumer_and_an_operator_stop_too"),
    case("R36", "one damaged record stops everything", Symbol("Records.all", all_or_nothing),
         f"{VERSIONS}test_a_damaged_record_concerns_its_topic_alone"),
)  # fmt: skip
