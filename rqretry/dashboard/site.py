"""The dashboard as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rqretry.admin.series import SeriesWriter, series
from rqretry.client import AsyncClient
from rqretry.core.parts import parts_of
from rqretry.dashboard.access import Guard, Rights
from rqretry.dashboard.actions import Actions
from rqretry.dashboard.live import Streams
from rqretry.dashboard.pages import Pages
from rqretry.dashboard.past import Pair, Past
from rqretry.dashboard.render import Page, compile_templates, guarded, not_found
from rqretry.dashboard.sampler import FRESH_S, Sampler, Seen
from rqretry.protocol.series import Point

LOOK_S = 1.0
_FILES = {"style.css": "text/css", "site.js": "text/javascript"}


def make_site(
    client: AsyncClient,
    rights: Rights,
    *,
    trace_url: str | None = None,
    fresh_s: float = FRESH_S,
) -> Guard:
    """Make the application.

    Args:
        client: Its namespace is shown; closing it is up to the caller.
        rights: Who may see the pages, and who may act.
        trace_url: The address of a trace, with {trace_id} in it.
        fresh_s: How old the numbers of a page may be, in seconds.
    """
    store, context = parts_of(client.admin)
    writer = SeriesWriter()

    async def read() -> Seen:
        stats, workers = await client.admin.stats(), await client.admin.workers()
        fault = await parts_of(client).store.look(LOOK_S)
        await store.perform(writer.round(context, stats))
        return stats, workers, fault

    async def past(pair: Pair | None, minutes: int) -> list[Point]:
        found = await store.perform(series(context, [pair] if pair else (), minutes=minutes))
        return found[pair]

    sampler = Sampler(read, Past(past), fresh_s=fresh_s)
    streams = Streams(sampler)
    pages, actions = Pages(client, rights, sampler, trace_url), Actions(client, rights)

    @asynccontextmanager
    async def sampling(_app: Starlette) -> AsyncIterator[None]:
        compile_templates()
        async with asyncio.TaskGroup() as tasks:
            first, task = sampler.tick, tasks.create_task(sampler.run())
            await first.wait()  # numbers for the first page, or a reason why there are none
            yield
            task.cancel()

    gets: dict[str, Page] = {
        "/": pages.overview,
        "/live": streams.stream,
        "/topics": pages.topics,
        "/workers": pages.workers,
        "/search": pages.search,
        "/group/{group:path}": pages.group,
        "/messages/{group:path}": pages.messages,
        "/dead/{group:path}": pages.dead,
        "/cron": pages.cron,
        "/message": pages.message,
        "/message/{id:path}": pages.message,
        "/confirm/{verb}/{group:path}": actions.confirm,
    }
    gets |= {f"/{name}": _file(name, kind) for name, kind in _FILES.items()}
    routes = [Route(path, guarded(page), methods=["GET"]) for path, page in gets.items()]
    routes.append(Route("/act/{verb}/{group:path}", guarded(actions.act), methods=["POST"]))
    app = Starlette(routes=routes, lifespan=sampling, exception_handlers={404: _missing})
    app.router.redirect_slashes = False
    return Guard(app, rights, streams.close)


def _file(name: str, kind: str) -> Page:
    content = Path(__file__).with_name(name).read_bytes()

    async def file(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return file


async def _missing(_request: Request, _error: Exception) -> Response:
    return not_found()
