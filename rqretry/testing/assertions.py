"""The part of a lab that reads: the path of a message, its attempts, and assertions on both."""

from rqretry.catalog.catalog import Catalog
from rqretry.core.lifecycle import State
from rqretry.testing import history
from rqretry.testing.clock import VirtualClock
from rqretry.testing.history import Attempt, MessageHistory, Step
from rqretry.testing.lab_stores import LabStore


class Assertions:
    """Reads the history that the scripts wrote."""

    def __init__(self, store: LabStore, clock: VirtualClock, namespace: str) -> None:
        self._store = store
        self._clock = clock
        self.namespace = namespace

    def history(self, id: str, *, group: str | None = None) -> list[str]:  # noqa: A002 - as above
        """The states that a message went through in a group, from the first to the current one.

        Args:
            id: The message.
            group: Needed where the topic has more than one; default its only one.

        Raises:
            MessageNotFound: No such message was published here.
            InvalidArgument: Its topic has several groups, and `group` names none of them.
        """
        return [step.state for step in self.steps(id, group=group)]

    def steps(self, id: str, *, group: str | None = None) -> list[Step]:  # noqa: A002
        """`history` with times, verbs, attempts and errors."""
        found = self._history(id)
        return found.steps(found.group(group), self._clock)

    def attempts(self, id: str, *, group: str | None = None) -> list[Attempt]:  # noqa: A002
        """`history` as deliveries: number, when (seconds), outcome and error."""
        return history.attempts(self.steps(id, group=group))

    def assert_path(self, id: str, path: str, *, group: str | None = None) -> None:  # noqa: A002
        """Assert the states that the message went through, from the first to the last.

        Args:
            id: The message.
            path: States as lifecycle.State spells them, such as "ready inflight waiting_retry ...
                committed"; "..." or "…" stands for any states, also none.
            group: Needed where the topic has more than one; default its only one.

        Raises:
            AssertionError: It went another way; the text has the path it went.
            InvalidArgument, MessageNotFound: As history.
        """
        pattern, found = history.parse(path), self._history(id)
        name = found.group(group)
        steps = found.steps(name, self._clock)
        if not history.matches(pattern, [step.state for step in steps]):
            raise history.failure(found, name, steps, f"expected the path {path!r}")

    def assert_committed(self, id: str, *, group: str | None = None) -> None:  # noqa: A002
        """Assert that the message is committed.

        Args:
            id: The message.
            group: By this group; default by every group of the topic.

        Raises:
            AssertionError: It is not; the text has its path.
            InvalidArgument, MessageNotFound: As history.
        """
        found = self._history(id)
        for name in found.groups if group is None else [found.group(group)]:
            self._assert_last(found, name, State.COMMITTED)

    def assert_dead(
        self,
        id: str,  # noqa: A002
        *,
        reason: str | None = None,
        group: str | None = None,
    ) -> None:
        """Assert that the message is in the group's dead-letter queue.

        Args:
            id: The message.
            reason: Must be part of the last error, such as "ValueError: no", or its cause, such
                as "expired"; default any.
            group: Needed where the topic has more than one; default its only one.

        Raises:
            AssertionError: It is not, or for another reason; the text has its path.
            InvalidArgument, MessageNotFound: As history.
        """
        found = self._history(id)
        name = found.group(group)
        last = self._assert_last(found, name, State.DEAD)
        if reason is not None and reason not in last.error and reason != last.cause:
            steps = found.steps(name, self._clock)
            raise history.failure(found, name, steps, f"expected reason {reason!r}")

    def _history(self, id_: str) -> MessageHistory:
        catalog = Catalog(self.namespace)
        return self._store.perform(history.read_history(catalog, id_))

    def _assert_last(self, found: MessageHistory, group: str, state: State) -> Step:
        steps = found.steps(group, self._clock)
        last = steps[-1]
        if last.state != state:
            headline = f"expected {state.value}, it is {last.state}"
            raise history.failure(found, group, steps, headline)
        return last
