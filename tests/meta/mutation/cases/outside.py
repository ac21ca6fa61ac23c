"""What the outside brings: servers that confirm too early, threads that hang, very many at once."""

import threading
from concurrent.futures import Future
from typing import Any

from tests.meta.mutation.case import Symbol, answers, sends
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


CASES = (
    case("R7", "a server that confirms before its disk has it is believed",
         Symbol("core:syncs_before_waitaof", always(True)),
         "tests/contract/sentinel/test_durability.py::"
         "test_disk_is_refused_where_the_server_confirms_before_the_file_is_synced"),
    case("R12", "of very many that died in one millisecond some are fed twice",
         answers("HMGET", "config", "answer[3] = false", "feed_dlq_group"),
         "tests/lua/test_feed_dlq_group.py::"
         "test_feed_lists_each_of_very_many_that_died_in_one_millisecond_once"),
    case("R21", "of very many workers the first page is all", Symbol("protocol:live_workers", of_one_page),
         "tests/lua/test_namespace.py::test_roster_lists_all_of_very_many_in_pages"),
    case("R27", "no tokens are earned while the server's clock is behind",
         sends("HSET", "bucket", "args[4] = '0'", "rate_take"),
         "tests/lua/test_rate_limit.py::test_tokens_are_earned_on_after_the_clock_stepped_back"),
    case("R37", "a handler that hangs keeps its process", Symbol("DaemonThreads.submit", without_daemons),
         "tests/contract/integration/test_stopping.py::test_a_plain_handler_that_hangs_keeps_no_process"),
    case("R38", "any host name will do", Symbol("dashboard:host_name", always(THIS_MACHINE)),
         "tests/edges/dashboard/test_security.py::test_another_host_name_is_not_served"),
)  # fmt: skip
