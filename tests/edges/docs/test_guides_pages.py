"""docs/guides: what its tables name is there, and what other systems' programs become runs."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest

import rqretry
from rqretry import InvalidArgument, RqretryError
from rqretry.cli.main import cli
from rqretry.testing import Lab
from tests.edges.docs.examples import EXAMPLES, ROOT, example

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
SHOWN = re.compile(r'--8<-- "docs/examples/([\w/]+\.py)"')
COMMAND = re.compile(r"(?:^|`)(rqretry [a-z][^`\n]*)", re.MULTILINE)


def test_the_page_on_errors_has_every_exception() -> None:
    page = (ROOT / "docs/guides/publishing.md").read_text()
    table = page[page.index("| exception |") : page.index("All are `RqretryError`")]
    classes = (getattr(rqretry, name) for name in dir(rqretry))
    names = {c.__name__ for c in classes if isinstance(c, type) and issubclass(c, RqretryError)}
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    assert named == names - {"RqretryError"}


def test_every_program_is_shown_on_one_page() -> None:
    shown = [name for page in GUIDES for name in SHOWN.findall(page.read_text())]
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    unshown = {"django_shop/manage.py", "django_shop/shop/__init__.py"}
    assert sorted(shown) == sorted(files - unshown)


def commands() -> Iterator[Any]:
    for page in GUIDES:
        for text in sorted(set(COMMAND.findall(page.read_text()))):
            yield pytest.param(text, id=f"{page.stem}: {text}")


@pytest.mark.parametrize("text", list(commands()))
def test_every_command_and_option_exists(text: str) -> None:
    command: click.Command = cli
    context = click.Context(cli)
    for word in shlex.split(text)[1:]:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            assert found is not None, word
            command = found
        elif word.startswith("-"):
            assert word in {name for option in command.params for name in option.opts}


def test_what_a_celery_task_becomes(
    lab: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with example("from_celery") as shop:
        lab.app(shop.app)
        assert shop.publish()[2] == "charge-19"
        with pytest.raises(InvalidArgument):
            shop.charge.send_sync(17, amonut=12)
        negative = shop.charge.send_sync(20, amount=-1)
        lab.advance("2s")  # 100 in a minute
        # The program's tomorrow is long past on the lab's clock, so it comes at once.
        first = sorted(capsys.readouterr().out.splitlines())
        assert first == ["charged 12 for order 17", "charged 12 for order 19"]
        lab.assert_dead(negative, reason="a negative amount will never be right")
        lab.advance("1m")
        assert capsys.readouterr().out == "charged 12 for order 18\n"

        def busy(order: int, amount: int) -> None:
            raise shop.BankIsBusyError

        monkeypatch.setattr(shop, "call_the_bank", busy)
        refused = shop.charge.send_sync(21, amount=1)
        lab.advance("1h")
        at = [attempt.at for attempt in lab.attempts(refused)]
        assert [round(later - sooner) for sooner, later in pairwise(at)] == [60] * 5


def test_what_an_rq_job_becomes(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    with example("from_rq") as shop:
        lab.app(shop.app)
        shop.publish()
        call = {"to": "ada@example.org", "subject": "from elsewhere"}
        lab.publish("send_email", {"args": [], "kwargs": call})
        lab.run_until_idle()
        lab.advance("1m")
        shown = capsys.readouterr().out.splitlines()
    assert sorted(shown) == [
        "to ada@example.org Hello",
        "to ada@example.org from elsewhere",
        "to alan@example.org Hello",
        "to grace@example.org Hello",
    ]


def test_what_a_rocketmq_consumer_becomes(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    with example("from_rocketmq") as shop:
        lab.app(shop.app)
        shop.publish(12)
        wrong = shop.publish(-12)
        lab.run_until_idle()
        assert capsys.readouterr().out == "customer-4 ('order-17',) web\n" * 2
        lab.advance("29s")
        assert len(lab.attempts(wrong, group="billing")) == 1
        lab.advance("2s")  # level 4 is 30 s
        assert len(lab.attempts(wrong, group="billing")) == 2
        lab.advance("5h")
        assert len(lab.attempts(wrong, group="billing")) == 17


def test_a_page_of_each_system_is_honest() -> None:
    pages = [page for page in GUIDES if page.name.startswith("from-")]
    assert len(pages) == 3
    assert all("## What rqretry does not have" in Path(page).read_text() for page in pages)
