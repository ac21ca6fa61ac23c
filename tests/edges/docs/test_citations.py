"""What the code and the pages cite is in this repository: decisions, files, headings."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "lua").glob("*.md")])
FOLDERS = ("rqretry", "lua", "tests", "docs", "benchmarks", "workers", "tools", "deploy")
ELSEWHERE = re.compile(
    r"(?<![\w/])(?:semantics|design|decisions|reliability|house)\.md\b"
    r"|\b(?:[Dd]ecisions|design(?:\.md)? section|semantics section) [0-9]+"
)
"""How documents were cited that are not shipped."""


def texts() -> Iterator[tuple[Path, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".pyi", ".lua", ".md", ".toml", ".yaml"}:
                yield path, path.read_text()


def test_every_decision_that_is_cited_exists() -> None:
    known = {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")}
    cited = {
        (number, str(path.relative_to(ROOT)))
        for path, text in texts()
        for number in re.findall(r"\bdecisions?[/ ](0[0-9]{3})\b", text)
    }
    assert cited
    assert not {(number, path) for number, path in cited if number not in known}


def test_the_index_of_decisions_is_complete_and_has_their_titles() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((.*?)\) \| (.*) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE
    )
    titles = [
        (path.name[:4], path.name, path.read_text().splitlines()[0].split(". ", 1)[1])
        for path in sorted(DECISIONS.glob("[0-9]*.md"))
    ]
    assert rows == titles


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`([\w.-]+/[\w./-]*\.(?:py|lua|toml|json|md))(?=`|::)", page.read_text())
    folders = re.findall(rf"`((?:{'|'.join(FOLDERS)})(?:/[\w-]+)*/?)`", page.read_text())
    places = (ROOT, ROOT / "rqretry")
    assert [
        path
        for path in (*named, *folders)
        if not any((place / path).exists() for place in places) and not path.startswith("build/")
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 _-]", "", t.lower()).replace(" ", "-") for t in titles}
            assert anchor in slugs, target


def test_nothing_cites_a_document_that_is_not_shipped() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match}"
        for path, text in texts()
        if path != Path(__file__)
        for match in ELSEWHERE.findall(text)
    }
    assert not found
