"""The test that `dlq replay --as-test` writes: a dead letter, and that its handler commits it."""

import os
import pprint
import re
from pathlib import Path

from rqretry.cli.dead_letter_export import new_file
from rqretry.cli.output import date
from rqretry.core.dead_letter import DeadLetterRecord

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


def write_test(file: str, dead_letter: DeadLetterRecord, target: str, app_dir: str) -> None:
    """Write it into a new file. Raises ClickException if that is there already."""
    with new_file(file) as stream:
        folder = os.path.relpath(app_dir, Path(file).parent)
        stream.write(render_test(dead_letter, target, folder))


def render_test(dead_letter: DeadLetterRecord, target: str, folder: str) -> str:
    """The test as text; `folder` is the app's, as seen from the test's."""
    module, _, app = target.partition(":")
    first, *_ = app.split(".")
    return _TEXT.format(
        id=dead_letter.id,
        story=_death(dead_letter),
        path=f"sys.path.insert(0, str((Path(__file__).parent / {folder!r}).resolve()))",
        module=module,
        first=first,
        app=app,
        body=_literal(dead_letter.body),
        group=dead_letter.group,
        test_name=re.sub(r"[^0-9A-Za-z]", "_", f"{dead_letter.group}_commits_{dead_letter.id}"),
        topic=dead_letter.topic,
        tag=dead_letter.tag,
        keys=dead_letter.keys,
        headers=_literal(dead_letter.headers),
        attempt=dead_letter.attempt,
        last=dead_letter.errors[-2].message if len(dead_letter.errors) > 1 else "",
    )


def _death(dead_letter: DeadLetterRecord) -> str:
    error = ascii(dead_letter.error)[1:-1].replace('"""', "'''")
    when = date(dead_letter.dead_since_ms)
    how = f"after delivery {dead_letter.attempt}, cause {dead_letter.cause}"
    return f"It died on {when} {how}:\n{error}"


def _literal(value: object) -> str:
    text = pprint.pformat(value, width=_WIDTH, sort_dicts=False)
    return f"(\n{text}\n)" if "\n" in text and not text.startswith(("(", "[", "{")) else text
