"""The test that `dlq replay --as-test` writes: a dead letter, and that its handler commits it."""

import os
import pprint
import re
from pathlib import Path

import click

from rqretry.cli.output import date
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import show

_WIDTH = 92

_TEXT = '''"""Written by rqretry dlq replay: fails as the message did, until its handler is fixed.

{story}
"""

import sys
from pathlib import Path

from rqretry.testing import Lab

{path}
from {module} import {first}  # noqa: E402

BODY = {body}


def test_{test_name}(lab: Lab) -> None:
    lab.app({app})
    message = lab.publish(
        {topic!r},
        BODY,
        id={id!r},
        tag={tag!r},
        keys={keys!r},
        headers={headers},
    )
    lab.next_attempt(message, {attempt}, group={group!r}, last_error={last!r})
    lab.run_until_idle()
    lab.assert_committed(message, group={group!r})
'''


def write_test(file: str, letter: DeadLetterRecord, target: str, app_dir: str) -> None:
    """Write it into a new file. Raises ClickException where that is there already."""
    path = Path(file)
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(render_test(letter, target, os.path.relpath(app_dir, path.parent)))
    except FileExistsError:
        reason = f"file {show(file)} is there already: remove it, or choose another name"
        raise click.ClickException(reason) from None


def render_test(letter: DeadLetterRecord, target: str, folder: str) -> str:
    """The test as text; `folder` is the app's, as seen from the test's."""
    module, _, app = target.partition(":")
    first, *_ = app.split(".")
    return _TEXT.format(
        id=letter.id,
        story=_story(letter),
        path=f"sys.path.insert(0, str((Path(__file__).parent / {folder!r}).resolve()))",
        module=module,
        first=first,
        app=app,
        body=_literal(letter.body),
        group=letter.group,
        test_name=re.sub(r"[^0-9A-Za-z]", "_", f"{letter.group}_commits_{letter.id}"),
        topic=letter.topic,
        tag=letter.tag,
        keys=letter.keys,
        headers=_literal(letter.headers),
        attempt=letter.attempt,
        last=letter.errors[-2].message if len(letter.errors) > 1 else "",
    )


def _story(letter: DeadLetterRecord) -> str:
    said = ascii(letter.error)[1:-1].replace('"""', "'''")
    when = date(letter.dead_since_ms)
    return f"It died on {when} after delivery {letter.attempt}, cause {letter.cause}:\n{said}"


def _literal(value: object) -> str:
    text = pprint.pformat(value, width=_WIDTH, sort_dicts=False)
    return f"(\n{text}\n)" if "\n" in text and not text.startswith(("(", "[", "{")) else text
