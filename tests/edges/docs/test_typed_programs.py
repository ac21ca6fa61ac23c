"""Every program of the documentation passes mypy and pyright, both strict.

Programs are the files below docs/examples, and all blocks of Python: each by itself that begins
with `# runs` or with the name of its file; the others of a page go on from one to the next. What
stands in a tab beside ours is code of other systems. The modules of a page are named after it here,
since two pages may both have a `shop`.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^```py[^\n]*\n(?!--8<--)(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/]+)\.py\n")
ALONE = "# runs\n"


def programs(page: Path) -> Iterator[tuple[str, str]]:
    """The name of each module of a page, and its text."""
    tour = []
    for number, text in enumerate(BLOCK.findall(page.read_text()), 1):
        named = FILE.match(text)
        if named or text.startswith(ALONE):
            yield named[1].replace("/", ".") if named else f"block_{number}", text
        else:
            tour.append(text)
    if tour:
        yield "tour", "\n".join(tour)


def written(page: Path, folder: Path) -> list[Path]:
    """The files that a page's programs are written to."""
    stem = re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
    found = dict(programs(page))
    names = {name: f"{stem}_{name.replace('.', '_')}" for name in found}
    paths = []
    for name, text in found.items():
        paths.append(folder / f"{names[name]}.py")
        paths[-1].write_text(renamed(text, names))
    return paths


def renamed(text: str, names: dict[str, str]) -> str:
    """A program that imports the modules of its page by their names here."""
    for name, ours in names.items():
        text = re.sub(rf"^import {name}$", f"import {ours} as {name}", text, flags=re.MULTILINE)
        text = re.sub(rf"^from {name} import", f"from {ours} import", text, flags=re.MULTILINE)
    return text


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("programs")
    paths = [path for page in PAGES for path in written(page, folder)]
    assert len(paths) > 20
    return paths


def examples() -> list[Path]:
    return sorted((DOCS / "examples").rglob("*.py"))


def test_mypy_finds_nothing_in_the_programs_of_the_pages(files: list[Path]) -> None:
    folder = files[0].parent
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(
        [*command, *map(str, examples())],
        cwd=ROOT,
        env={"PATH": "", "MYPYPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout + done.stderr == ""


def test_pyright_finds_nothing_in_the_programs_of_the_pages(files: list[Path]) -> None:
    folder = files[0].parent
    settings = {
        "include": [str(folder), str(DOCS / "examples")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT)],
        "reportUnusedFunction": False,  # handlers are registered, not called
        "reportDeprecated": False,  # as in pyproject.toml
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [str(Path(sys.executable).parent / "pyright"), "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable, "-p", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [
        f"{Path(d['file']).name}:{d['range']['start']['line'] + 1} {d['message']}" for d in found
    ] == []
