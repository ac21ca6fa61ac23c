"""The rules behind the guarantees."""

import time
from typing import Any

from tests.meta.mutation.case import (
    Constant,
    LuaFlags,
    LuaLine,
    Symbol,
    answers,
    drops,
    sends,
    writes_state,
)
from tests.meta.mutation.cases.common import always, any_receipt, case, command, takes

SCRIPTS = "tests/meta/guarantees/test_scripts.py::"
CALLS = "tests/meta/guarantees/test_calls.py::"
PUBLISH = "tests/lua/test_publish.py::"
NUMBERS = "tests/lua/test_lease_numbers.py::"
REPEATING = "tests/contract/integration/test_repeating.py::"
RECALL = "tests/lua/test_recall.py::"
EXPIRE = "tests/lua/test_expire.py::"
RIGHTS = "tests/contract/production/test_rights.py::"
EVICTION = "tests/contract/integration/test_eviction.py::"
STOPPING = "tests/contract/production/test_stopping.py::"
PROGRAM = "tests/edges/cli/test_program.py::"


def eager(original: Any) -> Any:
    """Connections of the library that repeat by themselves."""

    def made(*args: Any) -> Any:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        connection = original(*args)
        connection.retry = Retry(NoBackoff(), 3)
        return connection

    return made


def bug(original: Any) -> Any:
    """A full server is taken for a bug in a script."""

    def meaning(self: Any, command: Any, error: Exception) -> Any:
        from rqretry.core.errors import ScriptError

        if str(error).startswith("OOM"):
            return ScriptError(command.verb, 0, "out of memory")
        return original(self, command, error)

    return meaning


def definite(original: Any) -> Any:
    """No error of a server is ambiguous."""

    def meaning(server: Any, command: Any, error: Exception) -> Any:
        from dataclasses import replace

        return original(server, replace(command, ids=()), error)

    return meaning


def forgetting(original: Any) -> Any:
    """A call is repeated once, for all its messages."""

    def resolve(self: Any, call: Any, messages: Any) -> Any:
        answers = yield from original(self, call, messages)
        self._unresolved.forget([message.id for message in call.messages])
        return answers

    return resolve


def careless(original: Any) -> Any:
    """Only partitions that have answered count."""

    def decide(self: Any, decision: str) -> Any:
        self._doubtful = None
        return (yield from original(self, decision))

    return decide


def at_its_answer(original: Any) -> Any:
    """A renewal is trusted from its answer on."""
    return lambda self, batch, verdicts, _sent_at: original(self, batch, verdicts, time.monotonic())


def mortal(_original: Any) -> Any:
    """Signals have their old effect again when a command has been stopped."""

    def leave(self: Any, *_: Any) -> None:
        import signal

        self._left.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    return leave


def over(original: Any) -> Any:
    """The deadline that a handler sees is over when it begins."""

    def made(self: Any, lease: Any, envelope: Any, attempt: Any, retries: Any, _: Any, *rest: Any
             ) -> None:  # fmt: skip
        original(self, lease, envelope, attempt, retries, time.monotonic() - 1, *rest)

    return made


def reading(original: Any) -> Any:
    """A command that lists the workers, in place of one that registers a worker."""

    def made(keys: Any, **named: Any) -> Any:
        from rqretry.protocol import maintain

        return original(keys, **named) if named.get("ttl_ms") else maintain.roster(keys)

    return made


def takes_eviction(_: Any) -> Any:
    """A server that evicts is fine."""

    def found(_info: Any) -> Any:
        from rqretry.checks.check_result import Finding

        return Finding("eviction", "ok", "")

    return found


def without_doubt(original: Any) -> Any:
    """A call that was repeated passes for the first one."""
    return lambda handle, verdict, _doubt: original(handle, verdict, None)


CASES = (
    case("R1", "a settle is refused by a full server", LuaFlags("succeed", "none"),
         f"{SCRIPTS}test_only_scripts_that_take_new_work_are_refused_by_a_full_server"),
    case("R2", "a stale route is not noticed",
         answers("HMGET", "meta", "local i = at(args, 'route') answer[i] = ARGV[1]", "publish"),
         f"{PUBLISH}test_publish_by_a_stale_route_writes_nothing_and_reports_the_new_one"),
    case("R3", "what is due leaves its level before it is in a list",
         sends("RPUSH", "retry", "for _, level in ipairs(KEYS) do if string.find(level, ':delay:%d+$') then original('ZREM', level, unpack(args)) end end", "promote"),
         "tests/lua/test_crash_points.py::test_a_script_cut_anywhere_loses_nothing[left-promote]"),
    case("R4", "a script makes up a key",
         LuaLine("recall", "local made_up = 'rqretry:' .. KEYS[1]"),
         f"{SCRIPTS}test_a_script_computes_no_key_from_what_it_reads[recall]"),
    case("R5", "any receipt settles", any_receipt(),
         f"{EXPIRE}test_expire_makes_the_late_settle_of_a_stopped_worker_stale"),
    case("R5", "another server that has the data is not noticed",
         answers("HGET", "meta", "answer = original('GET', 'rqretry:virtual-clock:life') or 'first'", "lease"),
         f"{NUMBERS}test_a_message_leased_again_after_lost_writes_has_another_number"),
    case("R5", "a lease keeps the number of its entry, which an older server may have given out",
         drops("HSET", "attempts", "lease"),
         f"{NUMBERS}test_a_message_that_failed_before_the_snapshot_has_another_number"),
    case("R5", "purging lets the numbers of leases be",
         drops("HDEL", "meta", "purge"),
         f"{NUMBERS}test_an_id_that_an_operator_freed_has_other_numbers_in_every_group"),
    case("R31", "the id of a recalled message stays known", drops("HDEL", "ids", "recall"),
         f"{RECALL}test_recall_frees_the_id_and_a_late_repeat_of_the_call_does_not_bring_it_back"),
    case("R32", "a call in doubt is forgotten when one of its messages was asked for",
         Symbol("Publishing._resolve", forgetting),
         f"{REPEATING}test_what_is_ambiguous_is_repeated_exactly_also_when_it_was_handled_meanwhile"),
    case("R32", "a transaction whose opening is in doubt is left alone",
         Symbol("TransactionOperations._decide", careless),
         f"{REPEATING}test_a_transaction_whose_opening_is_in_doubt_is_decided_all_the_same"),
    case("R19", "an error inside a script says that nothing was done",
         Symbol("transport:meaning", definite),
         f"{REPEATING}test_a_script_that_stops_half_way_is_ambiguous"),
    case("R6", "a repeated call is a new one", drops("SET", "lane", answer="'OK'"),
         f"{PUBLISH}test_publish_repeated_is_answered_as_before_and_changes_nothing"),
    case("R7", "the number of replicas is not compared", Symbol("core:doubt", always("")),
         "tests/contract/sentinel/test_durability.py::test_what_no_replica_confirms_is_stored_and_says_so"),
    case("R8", "the library repeats what it has sent", Symbol("transport:sync_connection", eager),
         f"{CALLS}test_the_library_of_redis_repeats_nothing_by_itself"),
    case("R9", "time goes back with the server's clock",
         answers("HMGET", "meta", "local i = at(args, 'mark') if i then answer[i] = '0' end"),
         "tests/lua/test_clock.py::test_time_runs_on_from_its_mark_when_the_clock_goes_back"),
    case("R10", "a message is taken off before it is anywhere else",
         LuaLine("promote", "call('ZPOPMIN', KEYS[11], 0)"),
         f"{SCRIPTS}test_a_script_never_waits_and_takes_nothing_off_a_list_before_it_is_leased[promote]"),
    case("R11", "an expiry counts no attempt",
         writes_state("lease, attempt - 1, expiries, postpones", "expire"),
         f"{EXPIRE}test_expire_the_first_time_makes_the_message_ready_at_once_and_counts"),
    case("R12", "expiry takes all that is overdue at once",
         sends("ZRANGEBYSCORE", "inflight", "args[5] = 100 * args[5]", "expire"),
         f"{EXPIRE}test_expire_takes_a_bounded_batch_oldest_first"),
    case("R13", "what is due leaves its level and is in no list",
         drops("RPUSH", "retry", "promote"),
         "tests/lua/test_promote.py::test_promote_moves_what_is_due_to_the_retry_lane"),
    case("R14", "the auditor does not see an index that is late",
         Symbol("checks:_due", always(())), "tests/lua/test_auditor.py::test_the_auditor_sees"),
    case("R15", "a script that the server forgot is not loaded again",
         Symbol("transport:load", always(("PING",))),
         f"{CALLS}test_scripts_that_a_server_forgets_are_loaded_again"),
    case("R16", "an id is in the error that a script answers",
         LuaLine("recall", "if ARGV[2] == '' then return redis.error_reply(ARGV[2]) end"),
         f"{SCRIPTS}test_a_script_raises_no_error_and_answers_no_status_of_its_own[recall]"),
    case("R17", "a worker takes a server that evicts", Symbol("checks:_eviction", takes_eviction),
         f"{PROGRAM}test_a_worker_refuses_a_server_that_evicts"),
    case("R17", "nobody looks at the user's rights", Symbol("checks:denied", always(())),
         f"{RIGHTS}test_rights_are_proved_on_our_own_keys_by_the_commands_themselves"),
    case("R17", "a program that embeds a worker takes any server", Symbol("examine_before_work", always(None)),
         "tests/contract/production/test_rights.py::"
         "test_a_program_that_embeds_a_worker_looks_at_its_server_first"),
    case("R17", "nobody looks at the server again",
         Symbol("EvictionWatch.look", always(())),
         f"{EVICTION}test_a_client_publishes_nothing_to_a_server_that_evicts"),
    case("R37", "a signal kills a worker that ends", Symbol("Stoppable.__exit__", mortal),
         f"{STOPPING}test_signals_that_keep_coming_neither_kill_it_nor_print_an_error"),
    case("R38", "a request may take for ever", Symbol("TimedProtocol._limit", always(None)),
         "tests/edges/dashboard/test_patience.py::test_half_sent_requests_do_not_hold_the_dashboard"),
    case("R38", "wrong tokens are not counted", Symbol("WrongTokens.add", always(None)),
         "tests/edges/dashboard/test_security.py::test_who_sends_ten_wrong_tokens_waits_a_minute"),
    case("R38", "text of others is printed as it is", Symbol("core:escape", lambda _: str),
         "tests/edges/cli/test_escapes.py::test_no_command_prints_what_a_terminal_would_act_upon"),
    case("R18", "health asks a script that only reads", Symbol("protocol:register", reading),
         "tests/contract/production/test_health.py::test_ready_notices_a_redis_that_answers_and_takes_no_writes"),
    case("R19", "a full server is a bug in a script", Symbol("transport:meaning", bug),
         f"{CALLS}test_every_error_of_a_server_has_one_meaning"),
    case("R20", "a lease that nobody got ends ten minutes late",
         sends("ZRANGEBYSCORE", "inflight", "args[2] = args[2] - 600000", "expire"),
         f"{CALLS}test_a_lease_whose_reply_is_lost_costs_one_deadline_and_nothing_else"),
    case("R20", "a receive leases again for an answer that is lost",
         command("lease", lambda _: {"once": False}),
         "tests/contract/integration/test_lost_answers.py::"
         "test_a_receive_whose_answers_are_lost_leases_once_and_says_so"),
    case("R20", "what an ack committed itself is refused", Constant("consumer:_GONE", "b''"),
         "tests/contract/integration/test_lost_answers.py::"
         "test_an_ack_whose_answer_is_lost_refuses_what_was_refused_before_and_nothing_else"),
    case("R20", "who gave back hears that the lease has ended", Symbol("consumer:_check_verdict", without_doubt),
         "tests/contract/integration/test_lost_answers.py::"
         "test_who_gives_back_and_gets_no_answer_hears_that_it_may_have_happened"),
    case("R21", "a script reads a hash in the server's order",
         LuaLine("recall", "call('HKEYS', KEYS[1])"),
         f"{SCRIPTS}test_a_script_reads_no_set_or_hash_in_the_server_s_own_order[recall]"),
    case("R22", "any text is a message id", takes("check_message_id", lambda _: "a"),
         "tests/unit/core/test_limits.py::test_a_bad_message_id_is_refused"),
    case("R22", "digits of any script are numbers", Symbol("core:read_whole", lambda _: int),
         "tests/contract/integration/test_simple_consumer.py::test_a_malformed_or_foreign_receipt_is_refused"),
    case("R22", "a text is many messages", Symbol("core:several", lambda _: lambda given: given),
         "tests/contract/integration/test_publishing.py::test_one_body_is_not_taken_for_many"),
    case("R22", "a misspelt variable is ignored", Symbol("core:check_variables", always(None)),
         "tests/unit/core/test_settings.py::test_a_misspelt_variable_is_refused_with_the_name_that_was_meant"),
    case("R22", "what a worker never serves is registered", Symbol("Declared.refuse_late", always(None)),
         "tests/contract/integration/test_late_registration.py::test_nothing_is_registered_while_a_worker_runs"),
    case("R23", "a renewal is trusted from its answer on",
         Symbol("Heartbeat._note", at_its_answer),
         f"{CALLS}test_what_is_trusted_of_a_renewal_runs_from_its_sending"),
    case("R24", "the deadline that a handler sees is over when it begins",
         Symbol("Message.__init__", over),
         "tests/contract/integration/test_outcomes.py::test_what_a_handler_sees_of_its_message"),
)  # fmt: skip
