"""The pages that only read: overview, group, dead letters, message."""

import asyncio
import re
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.admin.dead_letters import clusters, page_of_dead_letters
from rqretry.admin.views import Cluster, MessageView
from rqretry.client import AsyncClient
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import MessageNotFound
from rqretry.dashboard.access import Rights
from rqretry.dashboard.charts import draw
from rqretry.dashboard.render import render
from rqretry.dashboard.request_args import asked, fingerprint_of, group_of, id_of, page_of
from rqretry.dashboard.sampler import Sampler

PAGE_ROWS = 50
MOST_ROWS = 200
_AUDIT_ROWS = 10
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


class Pages:
    """GET: nothing here changes anything."""

    def __init__(
        self, client: AsyncClient, rights: Rights, sampler: Sampler, trace_url: str | None
    ) -> None:
        self._admin = client.admin
        self._perform = client.store.perform
        self._sampler = sampler
        self._trace_url = trace_url
        self._frame = rights.frame(client.settings.namespace)
        self._one = asyncio.Lock()  # a far page of dead letters takes long: one at a time

    async def overview(self, request: Request) -> Response:
        """Topics and groups."""
        asked(request)
        stats = await self._sampler.latest()
        rows = [(topic, group) for topic in stats.topics for group in topic.groups]
        return render(
            "overview.html",
            stats=stats,
            rows=rows[:MOST_ROWS],
            more=max(0, len(rows) - MOST_ROWS),
            topics=stats.topics[:MOST_ROWS],
            rate=self._sampler.rate,
            **self._frame,
        )

    async def cron(self, request: Request) -> Response:
        """Periodic messages."""
        asked(request)
        found = await self._admin.schedules()
        return render("cron.html", schedules=found[:MOST_ROWS], **self._frame)

    async def group(self, request: Request) -> Response:
        """One group: its ladder, its charts and its audit entries."""
        name = group_of(request)
        asked(request)
        info = await self._admin.group(name)
        stats = await self._sampler.latest()
        mine = [(t.topic, g) for t in stats.topics for g in t.groups if g.group == name]
        audit = [
            entry for entry in await self._admin.audit() if entry.arguments.get("group") == name
        ]
        charts = {topic: self._charts(topic, name) for topic, _ in mine[:_AUDIT_ROWS]}
        return render(
            "group.html",
            info=info,
            rows=mine[:MOST_ROWS],
            charts=charts,
            audit=audit[:_AUDIT_ROWS],
            **self._frame,
        )

    def _charts(self, topic: str, group: str) -> list[object]:
        verbs = {verb: self._sampler.rates(topic, group, verb) for verb in ("succeed", "fail")}
        return [
            draw("Attempts per second", verbs),
            draw("Due and not started", {"due": self._sampler.lag(topic, group)}),
        ]

    async def dead(self, request: Request) -> Response:
        """The dead letters of a group: by fingerprint, or those of one fingerprint."""
        name, fields = group_of(request), asked(request, "fingerprint", "page")
        fingerprint, page = fingerprint_of(fields), page_of(fields)
        first = (page - 1) * PAGE_ROWS
        context, dead_letters = self._admin.operations, list[DeadLetterRecord]()
        async with self._one:
            found: list[Cluster] = await self._perform(clusters(context, name))
            rows = [row for row in found if fingerprint in (None, row.fingerprint)]
            if fingerprint is not None:
                wanted = DeadLetterFilter(fingerprint=fingerprint)
                page_read = page_of_dead_letters(context, name, wanted, first, PAGE_ROWS)
                dead_letters = await self._perform(page_read)
        total = sum(row.count for row in rows)
        return render(
            "dead_letters.html",
            group=name,
            fingerprint=fingerprint,
            total=total,
            clusters=rows[:MOST_ROWS],
            more=max(0, len(rows) - MOST_ROWS),
            dead_letters=dead_letters,
            page=page,
            last=first + PAGE_ROWS >= total,
            **self._frame,
        )

    async def message(self, request: Request) -> Response:
        """One message: where it is, why it is not running, and its history."""
        id_ = id_of(request)
        view = await self._find(id_)
        return render(
            "message.html",
            view=view,
            timeline=view.timeline[-MOST_ROWS:],
            trace=self._trace,
            **self._frame,
        )

    async def _find(self, id_: str) -> MessageView:
        """The message; one that is not stored any more is rebuilt from its history."""
        try:
            return await self._admin.message(id_)
        except MessageNotFound:
            return await self._admin.remembered(id_)

    def _trace(self, trace_id: str | None) -> str | None:
        """Where a trace is shown; None without --trace-url."""
        url = self._trace_url
        if url is None or trace_id is None or not _TRACE_ID.fullmatch(trace_id):
            return None
        return url.replace("{trace_id}", quote(trace_id))
