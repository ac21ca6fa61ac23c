"""What RocketMQ's clients are promised."""

from dataclasses import replace
from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import always, case

DELIVERIES = "tests/edges/gateway/test_deliveries.py::"
TWICE = f"{DELIVERIES}test_what_is_sent_twice_is_stored_once_and_keeps_its_id"
CHANGED = f"{DELIVERIES}test_a_change_in_a_push_group_is_a_failed_attempt"
FORWARDED = f"{DELIVERIES}test_what_an_ordered_client_forwards_is_a_failed_attempt"
GOODBYE = f"{DELIVERIES}test_what_a_client_had_when_it_said_goodbye_comes_again_uncounted"
TABLELESS = f"{DELIVERIES}test_a_client_that_knows_no_tables_waits_by_the_groups_policy"
NODE = f"{DELIVERIES}test_a_nodejs_client_gets_its_settings_again"
REPEATED = f"{DELIVERIES}test_what_a_client_repeats_is_answered_as_the_first_time"
TOGETHER = f"{DELIVERIES}test_attempts_of_a_client_and_of_a_python_worker_count_together"
BEATING = f"{DELIVERIES}test_a_push_consumer_whose_heartbeat_says_simple_stays_one"
ELSEWHERE = (
    "tests/edges/gateway/test_gateways.py::"
    "test_a_lease_is_renewed_while_its_client_lives_at_another_gateway"
)
BROKEN = (
    "tests/edges/gateway/test_long_polls.py::"
    "test_what_a_stream_that_breaks_had_to_bring_comes_again_uncounted"
)
MANY = "tests/edges/gateway/test_many_polls.py::"
SHARED = f"{MANY}test_polls_that_wait_share_connections_and_looks_and_end_at_their_time"
FULL = f"{MANY}test_a_process_waits_for_so_many_groups_and_refuses_further_ones"
BUSY = f"{MANY}test_calls_that_find_no_slot_are_refused_in_time"
FORGED = "tests/edges/gateway/test_bad_requests.py::test_handles_that_name_no_lease_are_refused"


def own_id(original: Any) -> Any:
    """A message gets an id of ours."""
    return lambda message: replace(original(message), id=None)


def kind_of_beat(original: Any) -> Any:
    """Each heartbeat is believed."""

    async def heartbeat(self: Any, request: Any, caller: Any) -> Any:
        caller.client.kind = ""
        return await original(self, request, caller)

    return heartbeat


def no_reason(original: Any) -> Any:
    """A failure does not say who reported it."""
    return lambda cause, _, *more: original(cause, "", *more)


def nothing_given_back(_: Any) -> Any:
    """The messages of a client that left wait for their deadline."""

    async def give_back(*_: Any) -> None:
        """Do nothing."""

    return give_back


def nothing_known(_: Any) -> Any:
    """No call was made before."""

    def done_before(*_: Any) -> Any:
        yield from ()
        return set()

    return done_before


def everything_known(_: Any) -> Any:
    """Each call was made before."""

    def done_before(_operations: Any, _verb: Any, handles: Any) -> Any:
        yield from ()
        return {*handles}

    return done_before


def nobody_elsewhere(_: Any) -> Any:
    """Clients live here, or not at all."""

    async def knows(*_: Any) -> bool:
        return False

    return knows


def each_for_itself(_: Any) -> Any:
    """Nothing is shared."""

    async def once(_self: Any, _wanted: Any, make: Any) -> Any:
        return await make()

    return once


def looks_for_each(original: Any) -> Any:
    """A poll that begins has the reader look."""

    async def receive(self: Any, poll: Any) -> Any:
        self._asked.set()
        return await original(self, poll)

    return receive


def nobody_counts(original: Any) -> Any:
    """Nobody knows how many readers wait."""

    async def receive(self: Any, poll: Any) -> Any:
        self._serving.clear()
        return await original(self, poll)

    return receive


def for_ever(original: Any) -> Any:
    """A call waits for a slot for as long as it takes."""

    async def enter(self: Any) -> None:
        try:
            await original(self)
        except Exception:  # noqa: BLE001 - none was free
            await self._free.acquire()

    return enter


CASES = (
    case("R85", "what is sent again is another message", Symbol("gateway:outgoing", own_id), TWICE),
    case("R86", "errors are bugs of the gateway",
         Symbol("gateway:status_of", lambda original: lambda _: original(RuntimeError())), FORGED),
    case("R87", "a delay of the policy is one that the client asked for",
         Symbol("Settling._is_by_policy", always(False)), CHANGED),
    case("R87", "what an ordered client forwards is dead at once",
         Symbol("gateway:attempts_of", always(17)), FORWARDED),
    case("R88", "what a client had waits for its deadline",
         Symbol("gateway:give_back", nothing_given_back), GOODBYE),
    case("R96", "a wait of 0 is none", Symbol("Settling._is_by_policy", always(False)), TABLELESS),
    case("R96", "a Node.js client gets its settings once", Constant("_NODE_AGAIN_S", "()"), NODE),
    case("R98", "what is repeated is refused", Symbol("gateway:done_before", nothing_known), REPEATED),
    case("R98", "what anybody did was done by this client",
         Symbol("gateway:done_before", everything_known), REPEATED),
    case("R96", "a heartbeat says what a client is", Symbol("Telemetry.heartbeat", kind_of_beat),
         BEATING),
    case("R97", "nobody knows which client failed", Symbol("describe_cause", no_reason),
         TOGETHER),
    case("R99", "clients of other gateways are gone",
         Symbol("Gateways.knows", nobody_elsewhere), ELSEWHERE),
    case("R100", "what a broken stream had waits for its deadline",
         Symbol("gateway:give_back", nothing_given_back), BROKEN),
    case("R148", "each client subscribes by itself", Symbol("Groups._once", each_for_itself), SHARED),
    case("R148", "each poll looks", Symbol("GroupReader.receive", looks_for_each), SHARED),
    case("R148", "a process waits for any number of groups",
         Symbol("GroupReader.receive", nobody_counts), FULL),
    case("R148", "gRPC cancels what comes at once", Constant("_MOST_PENDING", "100"), SHARED),
    case("R148", "a call that finds no slot hangs", Symbol("Slots.__aenter__", for_ever), BUSY),
)  # fmt: skip
