"""Verbs for users: what is refused before anything is performed."""

import inspect
from typing import Any

import pytest

from rqretry import InvalidArgument
from rqretry.admin.dead_letters import dead_letters, redrive
from rqretry.admin.groups import set_group
from rqretry.protocol.facade import SyncFacade, Verb


class NoStore:
    """Performs nothing."""

    def perform(self, operation: Any) -> str:
        operation.close()
        return "performed"


class Verbs(SyncFacade[Any]):
    """Some verbs of operators."""

    dead_letters = Verb(dead_letters)
    redrive = Verb(redrive)
    set_group = Verb(set_group)


@pytest.fixture
def verbs() -> Verbs:
    store: Any = NoStore()
    return Verbs(store, None)


@pytest.mark.parametrize("bad", [None, 0, 1, "", "yes"])
def test_a_flag_is_true_or_false(verbs: Verbs, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^bodies .* must be True or False$"):
        verbs.dead_letters("g", bodies=bad)
    with pytest.raises(InvalidArgument, match=r"^dry_run .* must be True or False$"):
        verbs.redrive("g", all=True, dry_run=bad)


def test_a_flag_that_may_be_none_may_be(verbs: Verbs) -> None:
    assert inspect.signature(set_group).parameters["pin"].default is None
    answer: Any = verbs.set_group("g", pin=None)
    assert answer == "performed"
    with pytest.raises(InvalidArgument, match=r"^pin 'no' must be True or False$"):
        verbs.set_group("g", pin="no")  # type: ignore[arg-type]
