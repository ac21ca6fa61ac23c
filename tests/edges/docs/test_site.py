"""The site is built as `make docs` builds it: strictly, without a network, and whole."""

import json
import os
import re
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WRITTEN_IN_NAV = {"404.html"}
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
BAR_S = 60
"""A build takes two to six seconds; this says only that it does not wait for a network."""


def mkdocs(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", *options],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    begun = time.monotonic()
    done = mkdocs("--site-dir", str(folder))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < BAR_S
    return folder


class Tags(HTMLParser):
    """What a page fetches when it is opened, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.fetched += [values.get(FETCHED[tag]) or ""] if tag in FETCHED else []
        self.links += [values.get("href") or ""] if tag == "a" else []


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        text = page.read_text()
        fetched = Tags(text).fetched
        assert [url for url in fetched if re.match(r"(https?:)?//", url)] == [], page
        assert 'class="mermaid"' not in text, f"{page}: mermaid is fetched from elsewhere"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text()), sheet


def test_every_page_can_be_reached_from_the_first_one(site: Path) -> None:
    seen: set[Path] = set()
    left = [site / "index.html"]
    while left:
        page = left.pop()
        if page in seen:
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in Tags(page.read_text()).links]
        paths = [(page.parent / link).resolve() for link in links if link.endswith(".html")]
        left += [path for path in paths if path.is_relative_to(site)]
    every = {page for page in site.rglob("*.html") if page.name not in WRITTEN_IN_NAV}
    assert seen == every


def test_the_search_knows_every_page_of_the_navigation(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"index.html", "handlers.html", "decisions/index.html"} <= found


SMALL = f"""
site_name: one page
strict: true
hooks: [{ROOT / "tools" / "site_hooks.py"}]
theme: {{name: mkdocs, locale: en, highlightjs: false}}
plugins: []
validation: {{nav: {{omitted_files: warn}}}}
nav: [index.md]
"""


def errors(folder: Path) -> list[str]:
    """What a build of these pages says, which must fail."""
    (folder / "mkdocs.yml").write_text(SMALL)
    config = ("--config-file", str(folder / "mkdocs.yml"), "--site-dir", str(folder / "site"))
    done = mkdocs(*config)
    assert done.returncode != 0
    return re.findall(r"^(?:ERROR|WARNING) +-  (.*(?:\n  - .*)*)", done.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("See [the guide](guides/absent.md).", "guides/absent.md"),
        ("See `docs/examples/absent.py`.", "docs/examples/absent.py"),
        ('```python\n--8<-- "docs/examples/absent.py"\n```', "docs/examples/absent.py"),
    ],
)
def test_a_page_that_names_a_file_that_is_not_there_ends_the_build(
    tmp_path: Path, text: str, name: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    assert errors(tmp_path) == [
        f"docs/index.md names {name}, which is not there: mend the name, or add the file"
    ]


def test_a_page_that_is_not_in_the_navigation_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("index.md", "forgotten.md"):
        (tmp_path / "docs" / name).write_text("# A page\n")
    error = next(text for text in errors(tmp_path) if 'not included in the "nav"' in text)
    assert "  - forgotten.md" in error
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in settings
    assert "nav: {omitted_files: warn" in settings
