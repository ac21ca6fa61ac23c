"""The rules of what users touch first: completion, errors, `rqretry dev`."""

import tempfile
from pathlib import Path
from typing import Any

from tests.meta.mutation.case import Constant, Symbol
from tests.meta.mutation.cases.common import always, case

SURFACE = "tests/contract/surface/"
DEV = "tests/edges/cli/test_running.py::test_dev_starts_a_redis_says_how_to_publish_and_reloads"


def in_the_open(original: Any) -> Any:
    """An app has its hooks where everybody sees them."""

    def made(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.hooks = object()

    return made


def without_a_hint(_original: Any) -> Any:
    """Python's own words are enough."""
    return lambda reason, _function, _given: reason


def anywhere(_original: Any) -> Any:
    """The socket of `rqretry dev` is another one at each start."""
    return lambda _folder: Path(tempfile.mkdtemp()) / "home"


def as_text(original: Any) -> Any:
    """What is known before there is anything to log is text."""

    def announce(lines: Any, *, as_json: bool, **options: Any) -> None:
        original(lines, as_json=False, **options)

    return announce


def own_names(original: Any) -> Any:
    """The method has a name for the task itself."""

    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        return original(self, *args, **kwargs)

    return send


CASES = (
    case("R93", "completion on an app offers its insides", Symbol("App.__init__", in_the_open),
         f"{SURFACE}test_completion.py::test_completion_offers_what_users_need_and_nothing_else"),
    case("R93", "a misspelt argument is answered by Python alone", Symbol("_hint", without_a_hint),
         f"{SURFACE}test_typos.py::test_every_name_of_every_call_is_suggested_where_two_letters_changed_places"),
    case("R94", "a traceback keeps our frames", Symbol("end_at_caller", always(None)),
         f"{SURFACE}test_tracebacks.py::test_the_last_frame_is_the_users_and_the_cause_is_one_line"),
    case("R113", "what is published is judged when the server has answered",
         Symbol("check_publishable", always(None)),
         f"{SURFACE}test_checked_first.py::test_every_argument_of_every_call_is_judged_before_the_server_is_asked"),
    case("R113", "whatever an operator writes for True is true", Symbol("check_flags", always(None)),
         f"{SURFACE}test_checked_first.py::test_every_argument_of_every_call_is_judged_before_the_server_is_asked"),
    case("R114", "everything is a function", Symbol("check_function", always(None)),
         f"{SURFACE}test_decorators.py::test_what_is_no_function_is_refused_where_it_is_registered"),
    case("R114", "a body type that means nothing is an error of a library",
         Constant("_UNRESOLVED", "()"),
         f"{SURFACE}test_typed.py::test_a_body_type_that_is_not_known_is_refused_where_it_is_declared"),
    case("R141", "an error names a script", Constant("_CALLS", "{}"),
         "tests/contract/integration/test_publishing.py::test_an_ambiguous_publish_with_options_is_a_publish"),
    case("R141", "a tag with a comma is not mentioned", Symbol("warn_of_comma", always(None)),
         "tests/contract/integration/test_tags.py::test_a_tag_that_looks_like_several_is_warned_of"),
    case("R142", "a keyword of a task may be ours", Symbol("TaskSender.send", own_names),
         f"{SURFACE}test_tasks.py::test_a_keyword_may_have_any_name"),
    case("R95", "`rqretry dev` is somewhere else at each start", Symbol("home_of", anywhere), DEV),
    case("R95", "the banner is text where logs are JSON", Symbol("announce", as_text), DEV),
)  # fmt: skip
