"""The part of a lab that looks: the path of a message, its attempts, and assertions on both."""

from rqretry.catalog.catalog import Catalog
from rqretry.core.lifecycle import State
from rqretry.testing import history as paths
from rqretry.testing.clock import VirtualClock
from rqretry.testing.history import Attempt, Step, Story
from rqretry.testing.lab_stores import LabStore


class Looking:
    """Reads the history that the scripts wrote."""

    def __init__(self, store: LabStore, clock: VirtualClock, namespace: str) -> None:
        self._store = store
        self._clock = clock
        self.namespace = namespace

    def history(self, id: str, *, group: str | None = None) -> list[str]:  # noqa: A002 - as above
        """The states that a message went through in a group, from the first to the present one.

        Raises:
            MessageNotFound: No such message was published here.
            InvalidArgument: Its topic has several groups, and `group` names none of them.
        """
        return [step.state for step in self.steps(id, group=group)]

    def steps(self, id: str, *, group: str | None = None) -> list[Step]:  # noqa: A002
        """The same with times, verbs, attempts and errors."""
        story = self._story(id)
        return story.steps(story.group(group), self._clock)

    def attempts(self, id: str, *, group: str | None = None) -> list[Attempt]:  # noqa: A002
        """The deliveries of a message: number, when (seconds), outcome and error."""
        return paths.attempts(self.steps(id, group=group))

    def assert_path(self, id: str, path: str, *, group: str | None = None) -> None:  # noqa: A002
        """The message went this way, from the first state to the last.

        Args:
            id: The message.
            path: States as lifecycle.State spells them, such as "ready inflight waiting_retry ...
                committed"; "..." or "…" stands for any states, also none.
            group: Needed where the topic has more than one.

        Raises:
            AssertionError: It went another way, which is told.
            InvalidArgument, MessageNotFound: As history.
        """
        pattern, story = paths.parse(path), self._story(id)
        name = story.group(group)
        steps = story.steps(name, self._clock)
        if not paths.matches(pattern, [step.state for step in steps]):
            raise AssertionError(paths.tell(story, name, steps, f"expected the path {path!r}"))

    def assert_committed(self, id: str, *, group: str | None = None) -> None:  # noqa: A002
        """The group (default every group of the topic) has finished with the message.

        Raises:
            AssertionError: It has not; its path is told.
        """
        story = self._story(id)
        for name in story.groups if group is None else [story.group(group)]:
            self._assert_last(story, name, State.COMMITTED)

    def assert_dead(
        self,
        id: str,  # noqa: A002
        *,
        reason: str | None = None,
        group: str | None = None,
    ) -> None:
        """The message is in the group's dead-letter queue.

        Args:
            id: The message.
            reason: Must be part of the last error, such as "ValueError: no", or its cause, such
                as "expired".
            group: Needed where the topic has more than one.

        Raises:
            AssertionError: It is not, or for another reason; its path is told.
        """
        story = self._story(id)
        name = story.group(group)
        last = self._assert_last(story, name, State.DEAD)
        if reason is not None and reason not in last.error and reason != last.cause:
            steps = story.steps(name, self._clock)
            raise AssertionError(paths.tell(story, name, steps, f"expected reason {reason!r}"))

    def _story(self, id_: str) -> Story:
        catalog = Catalog(self.namespace)
        story: Story = self._store.perform(paths.read_story(catalog, id_))
        return story

    def _assert_last(self, story: Story, group: str, state: State) -> Step:
        steps = story.steps(group, self._clock)
        last = steps[-1]
        if last.state != state:
            headline = f"expected {state.value}, it is {last.state}"
            raise AssertionError(paths.tell(story, group, steps, headline))
        return last
