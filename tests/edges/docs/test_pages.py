"""Pages of docs/: each Python block that begins with `# runs` is run, and its app does work."""

import asyncio
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rqretry import App
from rqretry.core.parts import parts_of
from rqretry.testing.embedded_redis import EmbeddedRedis

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```python\n(# runs\n.*?)^```", re.DOTALL | re.MULTILINE)
WRITTEN_URL = "redis://localhost:6379/0"


def blocks() -> Iterator[Any]:
    for page in sorted(DOCS.rglob("*.md")):
        for number, text in enumerate(BLOCK.findall(page.read_text()), 1):
            yield pytest.param(page, text, id=f"{page.relative_to(DOCS)}-{number}")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedRedis() as server:
        yield server.url


@pytest.mark.filterwarnings("ignore:unclosed database")  # of a program that runs until it is ended
@pytest.mark.parametrize(("page", "text"), list(blocks()))
async def test_a_block_runs_and_its_worker_starts_and_stops(
    page: Path, text: str, url: str, request: pytest.FixtureRequest
) -> None:
    name = "page_" + re.sub(r"\W", "_", request.node.name)
    module = types.ModuleType(name)
    sys.modules[name] = module  # annotations are resolved in the module that holds them
    try:
        given = f'App("{url}", namespace="{name[:60]}", '
        code = re.sub(r"\bApp\((?=\)|lifespan=)", given, text.replace(WRITTEN_URL, url))
        code = code.replace('"default"', f'"{name[:60]}"')
        exec(compile(code, str(page), "exec"), module.__dict__)
        main = getattr(module, "main", None)
        if inspect.iscoroutinefunction(main):
            await main()
        elif main is not None:
            main()
        app = getattr(module, "app", None)
        if isinstance(app, App):
            await started_and_stopped(app)
    finally:
        del sys.modules[name]


async def started_and_stopped(app: App) -> None:
    if not (parts_of(app).consumers or parts_of(app).checkers.specs):
        return
    started = asyncio.Event()
    app.on("started")(lambda _: started.set())
    running = asyncio.ensure_future(app.run(signals=False, grace=1))
    async with asyncio.timeout(10):
        await started.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


def test_the_page_on_handlers_has_blocks_that_run() -> None:
    assert len(BLOCK.findall((DOCS / "handlers.md").read_text())) >= 5


def test_the_simple_consumer_of_the_page_receives_what_it_published(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (text,) = [t for t in BLOCK.findall((DOCS / "handlers.md").read_text()) if "receive(" in t]
    exec(compile(text.replace(WRITTEN_URL, url), "handlers.md", "exec"), {})
    assert capsys.readouterr().out == "{'amount': 12} 1\n"
