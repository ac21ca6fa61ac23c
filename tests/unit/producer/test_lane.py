"""Publishing without I/O: what goes into a call, and what an unresolved call means later."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rqretry.catalog.catalog import Catalog
from rqretry.core.catalog_records import TopicRecord
from rqretry.core.delay_levels import DEFAULT_LEVELS
from rqretry.core.envelope import digest
from rqretry.core.errors import (
    AmbiguousResult,
    ForgottenResult,
    InvalidArgument,
    MessageTooLarge,
    NotConfirmed,
)
from rqretry.core.history_notes import Noted
from rqretry.core.message import OutgoingMessage
from rqretry.core.message_id import MessageId, partition_of
from rqretry.core.route import Route, RouteGroup
from rqretry.producer.chunk import Room, chunks, room_in
from rqretry.producer.encode import Encoder
from rqretry.producer.lane import Lane, Publishing
from rqretry.protocol.command import Command, Pause
from rqretry.protocol.publish import PlainMessages, Prepared, Published
from rqretry.transport.session import ServerClock

ACCEPTED = Published("OK", 1_000, "")
FRONT = 6
"""Which argument of a publish names the call in front; '' for none."""
Answer = Callable[[Command[Any]], Any]


class Server:
    """Answers the steps of an operation, as a store would."""

    def __init__(self, answer: Answer = lambda _: ACCEPTED) -> None:
        self.answer = answer
        self.calls: list[Command[Any]] = []
        self.catalog = Catalog("test")
        self.catalog.store.known["t"] = TopicRecord("t", 4)
        self.catalog.store.levels = DEFAULT_LEVELS
        self.encoder = Encoder(self.catalog, ServerClock())
        self.publishing = Publishing(self.catalog, self.encoder.clock)

    def perform(self, operation: Any) -> Any:
        """Run an operation to its end."""
        step: Any = None
        error: Exception | None = None
        while True:
            try:
                command = operation.throw(error) if error else operation.send(step)
            except StopIteration as end:
                return end.value
            self.calls.append(command)
            step, error = None, None
            try:
                step = self.answer(command)
            except Exception as caught:  # noqa: BLE001 - handed to the operation
                error = caught

    def perform_from(self, operation: Any, answer: Published | None) -> Any:
        """Go on with an operation whose first call was answered."""

        def rest() -> Any:
            try:
                command = operation.send(answer)
                while True:
                    command = operation.send((yield command))
            except StopIteration as end:
                return end.value

        return self.perform(rest())

    def send(self, lane: Lane, *messages: Prepared) -> Any:
        """One call through a lane."""
        return self.perform(self.publishing.send(lane, messages))

    def prepare(self, *bodies: Any) -> list[tuple[int, Prepared]]:
        """Check and encode."""
        found: list[tuple[int, Prepared]] = self.perform(self.encoder.prepare("t", bodies))
        return found


def message(id_: str, data: bytes = b"x", same: str = "") -> Prepared:
    return Prepared(id_, data, same, "")


def lost(_: Command[Any]) -> Any:
    raise AmbiguousResult("publish", ["whatever"])


def lane_arguments(command: Command[Any]) -> tuple[Any, ...]:
    """seq, checksum and producer of a publish call."""
    return command.args[1], command.args[2], command.args[4]


def test_each_call_of_a_lane_has_the_next_number() -> None:
    server, lane = Server(), Lane("t", 0, 4)

    server.send(lane, message("a"))
    server.send(lane, message("b"))

    (one, two) = map(lane_arguments, server.calls)
    assert (one[0], two[0]) == (1, 2)
    assert one[2] == two[2] == lane.producer
    assert one[1] != two[1]


def test_a_checksum_is_over_ids_and_bodies_and_their_borders() -> None:
    sums = []
    for batch in (["a", "bc"], ["ab", "c"], ["a", "b"], ["a"]):
        server = Server()
        server.send(Lane("t", 0, 4), *(message(id_) for id_ in batch))
        sums.append(lane_arguments(server.calls[0])[1])
    assert len(set(sums)) == 4


def test_verdicts_become_ids_duplicates_and_conflicts() -> None:
    server = Server(lambda _: Published("OK", 1, "ADC"))

    new, known, other = server.send(Lane("t", 0, 4), message("a"), message("b"), message("c"))

    assert (new, new.duplicate, known, known.duplicate) == ("a", False, "b", True)
    assert isinstance(other, InvalidArgument)
    assert "'c'" in str(other)


def test_a_changed_route_is_noted_and_the_same_call_sent_again() -> None:
    newer = Route(1, 1, ())
    answers = iter([Published("STALE_ROUTE", 0, "", newer), ACCEPTED])
    server = Server(lambda _: next(answers))
    server.catalog.store.known["t"] = TopicRecord("t", 1, version=0)

    (sent,) = server.send(Lane("t", 0, 4), message("a"))

    assert isinstance(sent, MessageId)
    assert [call.args[0] for call in server.calls] == [0, 1]
    assert len(set(map(lane_arguments, server.calls))) == 1


def test_after_an_ambiguous_call_everybody_else_gets_a_fresh_producer() -> None:
    server, lane = Server(lost), Lane("t", 0, 4)
    producer = lane.producer
    with pytest.raises(AmbiguousResult):
        server.send(lane, message("a"))
    server.answer = lambda _: ACCEPTED

    server.send(lane, message("b"))

    assert lane_arguments(server.calls[1])[0] == 1
    assert lane_arguments(server.calls[1])[2] == lane.producer != producer


def test_publishing_an_ambiguous_id_again_repeats_that_very_call() -> None:
    server, lane = Server(lost), Lane("t", 0, 4)
    with pytest.raises(AmbiguousResult):
        server.send(lane, message("a"), message("b"))
    server.answer = lambda _: Published("DUPLICATE", 2, "")

    (again,) = server.send(lane, message("a", b"x, with its time of birth", digest(b"x")))

    assert (again, again.duplicate) == ("a", True)
    assert server.calls[1] == server.calls[0]
    # Its other id is asked for later, maybe when a group has committed it.
    (other,) = server.send(lane, message("b", b"x", digest(b"x")))
    assert (other, other.duplicate) == ("b", True)
    assert server.calls[2] == server.calls[0]


def test_a_repeat_that_is_ambiguous_too_can_be_repeated() -> None:
    server, lane = Server(lost), Lane("t", 0, 4)
    for _ in range(3):
        with pytest.raises(AmbiguousResult):
            server.send(lane, message("a"))
    assert server.calls[0] == server.calls[1] == server.calls[2]


def test_new_messages_beside_an_ambiguous_one_go_in_a_call_of_their_own() -> None:
    server, lane = Server(lost), Lane("t", 0, 4)
    with pytest.raises(AmbiguousResult):
        server.send(lane, message("a"))
    server.answer = lambda _: ACCEPTED

    answers = server.send(lane, message("new"), message("a"), message("newer"))

    assert answers == ["new", "a", "newer"]
    assert [call.ids for call in server.calls] == [("a",), ("a",), ("new", "newer")]


def test_a_cancelled_call_leaves_its_number_behind() -> None:
    server, lane = Server(), Lane("t", 0, 4)
    producer = lane.producer
    operation = server.publishing.send(lane, [message("a")])
    operation.send(None)

    operation.close()

    assert (lane.producer != producer, lane.seq) == (True, 0)


def test_as_much_is_remembered_as_there_is_room_for_and_the_error_says_so() -> None:
    server, body = Server(lost), b"x" * 2**20
    errors = []
    for number in range(70):
        with pytest.raises(AmbiguousResult) as caught:
            server.send(Lane("t", 0, 4), message(f"m{number}", body))
        errors.append(type(caught.value))
    assert errors == [AmbiguousResult] * 63 + [ForgottenResult] * 7
    for number in (0, 62, 69):
        sent = len(server.calls)
        with pytest.raises(AmbiguousResult):
            server.send(Lane("t", 0, 4), message(f"m{number}", body))
        assert (server.calls[sent] == server.calls[number]) is (number < 63)


def test_a_call_is_remembered_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(lost)
    with pytest.raises(AmbiguousResult):
        server.send(Lane("t", 0, 4), message("a"))
    monkeypatch.setattr("rqretry.producer.unresolved.REMEMBERED_S", -1.0)
    server.answer = lambda _: ACCEPTED
    server.send(Lane("t", 0, 4), message("a"))
    assert server.calls[1] != server.calls[0]


def test_what_was_not_confirmed_is_repeated_by_that_very_call() -> None:
    server = Server(lambda _: Published("OK", 1, "", doubt="no replica had it"))
    lane = Lane("t", 0, 4, durability="replica:1")
    (refused,) = server.send(lane, message("a"))
    assert isinstance(refused, NotConfirmed)
    server.answer = lambda _: Published("DUPLICATE", 2, "")
    (again,) = server.send(lane, message("a", b"x", digest(b"x")))
    assert (again, again.duplicate, again.durability) == ("a", True, "replica:1")
    assert lane_arguments(server.calls[1]) == lane_arguments(server.calls[0])


def test_a_server_that_answers_nonsense_is_a_bug_and_reported_so() -> None:
    server = Server(lambda _: Published("LANE_CONFLICT", 0, ""))
    with pytest.raises(Exception, match="LANE_CONFLICT"):
        server.send(Lane("t", 0, 4), message("a"))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], [1]),
        ([1] * 470, [470]),
        ([1] * 471, [470, 1]),
        ([400_000] * 5, [2, 2, 1]),
        ([4_000_000, 1, 1], [1, 2]),
        ([1, 4_000_000], [1, 1]),
        ([1024 * 1024], [1]),
    ],
)
def test_calls_hold_at_most_470_messages_or_1_mib(sizes: list[int], expected: list[int]) -> None:
    messages = [message(f"m{n}", b"x" * size) for n, size in enumerate(sizes)]

    cut = list(chunks(messages))

    assert [len(chunk) for chunk in cut] == expected
    assert [m for chunk in cut for m in chunk] == messages


def test_a_given_id_has_a_digest_that_leaves_the_time_of_publishing_out() -> None:
    server = Server()
    server.publishing.clock.note(5_000)
    item = OutgoingMessage(body={"n": 1}, id="order-1", tag="a", keys=["k"], headers={"h": "v"})
    ((partition, first),) = server.prepare(item)
    server.publishing.clock.note(9_000_000)
    ((_, later),) = server.prepare(item)

    assert (first.id, partition) == ("order-1", partition_of("order-1", 4))
    assert first.digest == later.digest != ""
    assert first.data != later.data  # the time itself is in the envelope


def test_a_made_id_has_no_digest() -> None:
    ((_, made),) = Server().prepare({"n": 1})
    assert made.digest == ""


@pytest.mark.parametrize(
    ("item", "delay_ms"),
    [
        (OutgoingMessage(body=1), ""),
        (OutgoingMessage(body=1, delay=0), ""),
        (OutgoingMessage(body=1, delay="1m30s"), 90_000),
        (OutgoingMessage(body=1, delay_level=1), 1_000),
        (OutgoingMessage(body=1, delay_level=18), 7_200_000),
        (OutgoingMessage(body=1, delay_level=99), 7_200_000),
    ],
)
def test_delays_go_in_milliseconds(item: OutgoingMessage, delay_ms: int | str) -> None:
    ((_, made),) = Server().prepare(item)
    assert made.delay_ms == delay_ms


@pytest.mark.parametrize(
    "bad",
    [
        {"delay": 1, "delay_level": 1},
        {"delay": -1},
        {"delay": True},
        {"delay": float("nan")},
        {"delay": "41d"},
        {"delay_level": 0},
        {"delay_level": True},
        {"delay_level": "3"},
        {"id": ""},
        {"id": "x" * 129},
        {"id": "a/b"},
        {"tag": "a|b"},
        {"keys": ["k"] * 17},
        {"keys": [""]},
        {"headers": {"": "v"}},
        {"headers": {"h": "x" * 20_000}},
        {"headers": {"h": 1}},
    ],
    ids=str,
)
def test_a_value_outside_its_limits_is_refused_before_anything_is_sent(bad: dict[str, Any]) -> None:
    server = Server()
    with pytest.raises(InvalidArgument):
        server.prepare(1, OutgoingMessage(**{"body": 1, **bad}))
    assert server.calls == []


def test_a_body_of_one_byte_too_many_is_refused() -> None:
    with pytest.raises(MessageTooLarge):
        Server().prepare(b"x" * (4 * 1024 * 1024 + 1))
    Server().prepare(b"x" * (4 * 1024 * 1024 - 100))


def test_a_call_carries_470_messages_or_a_mebibyte_of_bodies_at_most() -> None:
    large = [Prepared(f"large{n}", b"x" * 300_000, "", "") for n in range(10)]
    small = [Prepared(f"small{n}", b"x", "", "") for n in range(1100)]
    huge = [Prepared("huge", b"x" * 3_000_000, "", "")]

    assert [len(chunk) for chunk in chunks(large)] == [3, 3, 3, 1]
    assert [len(chunk) for chunk in chunks(small)] == [470, 470, 160]
    assert [len(chunk) for chunk in chunks([*large[:1], *huge, *large[:1]])] == [1, 1, 1]


def begun(operation: Any) -> Any:
    """The first step of an operation."""
    return operation.send(None)


def plain(*ids: str) -> PlainMessages:
    return PlainMessages([*ids], [b"x"] * len(ids))


def test_a_call_ahead_names_the_one_in_front_until_that_is_settled() -> None:
    server, two = Server(), (Lane("t", 0, 4), Lane("t", 0, 4))
    one, other, third = server.publishing.send_in_turn(two, [plain("a"), plain("b"), plain("c")])
    first, second = begun(one), begun(other)

    assert first.args[-2:] == ("a", b"x")
    assert (first.args[FRONT], second.args[FRONT]) == ("", f"1 {first.args[2]!s}")
    assert second.keys[-1].endswith(f"lane:{two[0].producer}")

    assert server.perform_from(one, ACCEPTED) == ["a"]
    assert begun(third).args[FRONT] == f"1 {second.args[2]!s}"
    assert server.perform_from(other, Published("LANE_GAP", 0, "")) == ["b"]
    (again,) = server.calls
    assert again.args == (*second.args[:FRONT], "", *second.args[FRONT + 1 :])
    assert (again.args[1], again.args[4]) == (1, two[1].producer)


def test_what_cannot_depend_on_the_call_in_front_waits_for_it() -> None:
    server, two = Server(), (Lane("t", 0, 4), Lane("t", 0, 4))
    delayed = [message("b")._replace(delay_ms=5)]
    one, other, third = server.publishing.send_in_turn(two, [plain("a"), delayed, plain("c")])
    begun(one)
    assert begun(other) == Pause(0)
    assert server.perform_from(one, ACCEPTED) == ["a"]
    assert server.perform_from(other, None) == ["b"]
    assert begun(third).args[-2:] == ("c", b"x")


@pytest.mark.parametrize(
    "named", [[message("b", same="d")], PlainMessages(["b"], [b"x"], ["d"])], ids=["one", "many"]
)
def test_ids_of_the_callers_go_ahead_and_may_be_followed(named: Sequence[Prepared]) -> None:
    server, two = Server(), (Lane("t", 0, 4), Lane("t", 0, 4))
    one, other, third = server.publishing.send_in_turn(two, [plain("a"), named, plain("c")])
    first, second = begun(one), begun(other)
    assert second.args[-3:] == ("b", named[0].data, "d")
    assert second.args[FRONT] == f"1 {first.args[2]!s}"
    assert server.perform_from(one, ACCEPTED) == ["a"]
    assert begun(third).args[FRONT] == f"1 {second.args[2]!s}"


def test_an_ambiguous_call_in_front_leaves_the_one_behind_to_itself() -> None:
    server, two = Server(), (Lane("t", 0, 4), Lane("t", 0, 4))
    one, other = server.publishing.send_in_turn(two, [plain("a"), plain("b")])
    begun(one)
    begun(other)
    with pytest.raises(AmbiguousResult):
        one.throw(AmbiguousResult("publish", ["a"]))

    assert server.perform_from(other, Published("LANE_GAP", 0, "")) == ["b"]
    assert server.send(two[0], message("a", same=digest(b"x"))) == ["a"]
    assert [call.ids for call in server.calls] == [("b",), ("a",)]


def test_a_call_carries_less_where_keys_and_ordered_groups_make_each_message_dear() -> None:
    groups = [RouteGroup(f"g{n}", n, "push", ordered=n <= 100) for n in range(1, 251)]
    plain = [Prepared(f"p{n}", b"x", "", "") for n in range(300)]
    keyed = [
        Prepared(f"k{n}", b"x", "", "", Noted(None, tuple("abcdefghijklmnop"), None))
        for n in range(300)
    ]
    named = [Prepared(f"n{n}", b"x", "", "", Noted(None, (), "name")) for n in range(50)]

    assert [len(chunk) for chunk in chunks(keyed)] == [150, 150]
    assert [len(chunk) for chunk in chunks(named)] == [50]
    room = room_in(Route(1, 1, tuple(groups)))
    assert [len(chunk) for chunk in chunks(plain, room)] == [160, 140]
    assert [len(chunk) for chunk in chunks(named, room)] == [24, 24, 2]


@pytest.mark.parametrize("named", [False, True])
def test_plain_messages_are_cut_as_others_are(named: bool) -> None:
    data = [b"x" * 300_000] * 7 + [b"x"] * 900 + [b"x" * 3_000_000]
    ids = [f"m{n}" for n in range(len(data))]
    digests = [f"d{n}" for n in range(len(data))] if named else None
    many = PlainMessages(ids, data, digests)
    alone = [Prepared(*one, "") for one in zip(ids, data, digests or [""] * len(ids), strict=True)]

    for most in (470, 100):
        cut = [list(part) for part in chunks(many, Room(most))]
        assert cut == [list(part) for part in chunks(alone, Room(most))]
        assert [message for part in cut for message in part] == alone
    assert many[1:3].ids == ["m1", "m2"]
    assert [*many.at([2, 0])] == [alone[2], alone[0]]
    assert [*many.followed_by(many[:2])] == [*alone, *alone[:2]]
