"""What the pages on concepts list is what the code has."""

import re
from pathlib import Path

from rqretry.core.lifecycle import TRANSITIONS

CONCEPTS = Path(__file__).parents[3] / "docs" / "concepts"


def test_the_page_on_messages_has_every_transition() -> None:
    rows = re.findall(
        r"^\| (\w+) \| (.*) \| (.*) \| (.*) \|$",
        (CONCEPTS / "message.md").read_text(),
        re.MULTILINE,
    )
    assert rows[1:] == [
        (t.verb, ", ".join(t.before) or "-", ", ".join(t.after) or "-", t.when) for t in TRANSITIONS
    ]


def test_the_glossary_names_each_term_once_and_in_order() -> None:
    text = (CONCEPTS / "glossary.md").read_text()
    terms = [line.partition(", ")[0] for line in re.findall(r"^\*\*(.*)\*\*$", text, re.MULTILINE)]
    assert len(terms) > 30
    assert terms == sorted(set(terms))
