"""What the outside brings: other servers, versions and lives of an id; threads, slots that move, very many at once."""

import threading
from concurrent.futures import Future
from typing import Any

from tests.meta.mutation.case import Constant, Symbol, answers, sends
from tests.meta.mutation.cases.clock import PROMOTED
from tests.meta.mutation.cases.common import always, case

THIS_MACHINE = "localhost"


def without_daemons(_: Any) -> Any:
    """A call runs in a thread that the interpreter waits for at its end."""

    def submit(_self: Any, call: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            future.set_result(call(*args, **kwargs))

        threading.Thread(target=run).start()
        return future

    return submit


def of_one_page(original: Any) -> Any:
    """Who lives is read once."""

    def made(keys: Any) -> Any:
        page = yield original(keys).send(None)
        return page[1]

    return made


def by_name(original: Any) -> Any:
    """An option that nobody knows is named, though it may be a piece of a password."""

    def rule(parts: Any, name: str, several: str) -> Any:
        from rqretry.core.errors import ConfigError

        try:
            return original(parts, name, several)
        except ConfigError as error:
            raise ConfigError(f"{error}: {name}") from None

    return rule


def as_version_2(original: Any) -> Any:
    """What is published has another layout than what was."""

    def made(*args: Any, **options: Any) -> bytes:
        data: bytes = original(*args, **options)
        return data[:1] + b"\x02" + data[2:]

    return made


def for_once(_: Any) -> Any:
    """The new server of a slot is asked just this once."""
    return lambda self, _node, error: self._node(self.url.at(str(error.host), int(error.port)))


def in_the_shared_list(original: Any) -> Any:
    """Places take turns in the list that other threads read."""

    def look(self: Any, *args: Any) -> Any:
        first = self._places.pop(0)
        self._places.append(first)
        return original(self, *args)

    return look


CASES = (
    case("R5", "a second life of an id begins with the numbers of the first",
         answers("HMGET", "meta", "local i = at(args, 'floor') if i then answer[i] = '9000000000000' end", "lease"),
         "tests/lua/test_lease_numbers.py::test_a_receipt_of_an_id_s_first_life_is_stale_in_the_second"),
    case("R7", "a server that confirms before its disk has it is believed",
         Symbol("core:syncs_before_waitaof", always(True)),
         "tests/contract/sentinel/test_durability.py::"
         "test_disk_is_refused_where_the_server_confirms_before_the_file_is_synced"),
    case("R12", "of very many that died in one millisecond some are fed twice",
         answers("HMGET", "config", "answer[3] = ''", "feed_dlq_group"),
         "tests/lua/test_feed_dlq_group.py::"
         "test_feed_lists_each_of_very_many_that_died_in_one_millisecond_once"),
    case("R21", "of very many workers the first page is all", Symbol("protocol:live_workers", of_one_page),
         "tests/lua/test_namespace.py::test_roster_lists_all_of_very_many_in_pages"),
    case("R27", "no tokens are earned while the server's clock is behind",
         sends("HSET", "bucket", "args[4] = '0'", "rate_take"),
         "tests/lua/test_rate_limit.py::test_tokens_are_earned_on_after_the_clock_stepped_back"),
    case("R27", "no tokens are earned on a replica that took over and whose clock is behind",
         sends("HSET", "bucket", "args[4] = '0'", "rate_take"), PROMOTED),
    case("R30", "a slot that has moved is looked for where it was",
         Symbol("ClusterTopology.redirected", for_once),
         "tests/contract/cluster/test_idle.py::test_a_worker_of_one_place_follows_it_to_another_primary"),
    case("R36", "the version before cannot read what this one publishes", Symbol("core:encode", as_version_2),
         "tests/contract/production/test_previous_version.py::test_the_version_before_works_beside_this_one"),
    case("R43", "places take turns in a list that other threads read",
         Symbol("SimpleOperations._look_everywhere", in_the_shared_list),
         "tests/contract/integration/test_simple_consumer_threads.py::test_threads_receive_through_one_consumer"),
    case("R37", "a handler that hangs keeps its process", Symbol("DaemonThreads.submit", without_daemons),
         "tests/contract/integration/test_stopping.py::test_a_plain_handler_that_hangs_keeps_no_process"),
    case("R38", "any host name will do", Symbol("dashboard:host_name", always(THIS_MACHINE)),
         "tests/edges/dashboard/test_security.py::test_another_host_name_is_not_served"),
    case("R38", "an option that nobody knows is shown", Symbol("core:_rule", by_name),
         "tests/unit/core/test_redis_url.py::test_no_error_shows_a_password"),
    case("R38", "something else than Redis is a server that is away",
         Constant("transport:_NO_REDIS", "'is unreachable'"),
         "tests/edges/cli/test_other_servers.py::test_something_else_than_redis_is_called_that"),
)  # fmt: skip
