"""The pages that only read: overview, group, dead letters, message."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.admin.dead_letters import clusters, page_of_dead_letters
from rqretry.admin.messages import STATES, MessageConditions
from rqretry.admin.results import MessagePage
from rqretry.admin.views import Cluster, MessageView, Stats
from rqretry.client import AsyncClient
from rqretry.core.dead_letter import DeadLetterRecord
from rqretry.core.errors import InvalidArgument, MessageNotFound
from rqretry.core.limits import check_message_id
from rqretry.core.parts import parts_of
from rqretry.dashboard.access import Rights
from rqretry.dashboard.overview import group_charts, overview, span_of, spans
from rqretry.dashboard.render import render
from rqretry.dashboard.request_args import asked, fingerprint_of, group_of, id_of, page_of, text_of
from rqretry.dashboard.rows import PAGE_ROWS
from rqretry.dashboard.sampler import Sampler

MOST_ROWS = 200
_AUDIT_ROWS = 10
_TAG_GROUPS, _TAG_ROWS = 10, 5
_TRACE_ID = re.compile(r"[0-9a-f]{32}")


class Pages:
    """GET: nothing here changes anything."""

    def __init__(
        self, client: AsyncClient, rights: Rights, sampler: Sampler, trace_url: str | None
    ) -> None:
        self._admin = client.admin
        self._perform = parts_of(client).store.perform
        self._sampler = sampler
        self._trace_url = trace_url
        self._frame = rights.frame(parts_of(client).settings.namespace)
        self._one = asyncio.Lock()  # a far page of dead letters takes long: one at a time

    async def overview(self, request: Request) -> Response:
        """Problems, numbers and groups."""
        return await overview(request, self._sampler, self._frame)

    async def topics(self, request: Request) -> Response:
        """What each topic stores."""
        fields = asked(request, "q", "page")
        chosen, page = text_of(fields, "q"), page_of(fields)
        stats = await self._sampler.latest()
        found = [topic for topic in stats.topics if chosen.lower() in topic.topic.lower()]
        return self._list("topics.html", found, page, {"q": chosen}, "topics")

    async def workers(self, request: Request) -> Response:
        """Who runs."""
        page = page_of(asked(request, "page"))
        found = await self._admin.workers()
        found.sort(key=lambda worker: (-worker.blocked_s, -worker.failures, worker.name))
        return self._list("workers.html", found, page, {}, "workers")

    def _list(
        self, template: str, rows: Sequence[Any], page: int, chosen: dict[str, str], name: str
    ) -> Response:
        """One page of rows."""
        given = {
            name: rows[(page - 1) * PAGE_ROWS : page * PAGE_ROWS],
            "total": len(rows),
            "asked": chosen,
            "page": page,
            "last": page * PAGE_ROWS >= len(rows),
            "page_link": lambda number: f"?{urlencode(chosen | {'page': number})}",
        }
        return render(template, **given, **self._frame)

    async def cron(self, request: Request) -> Response:
        """Periodic messages."""
        asked(request)
        found = await self._admin.schedules()
        return render("cron.html", schedules=found[:MOST_ROWS], **self._frame)

    async def group(self, request: Request) -> Response:
        """One group: its ladder, its charts and its audit entries."""
        name, span = group_of(request), span_of(asked(request, "span"))
        info = await self._admin.group(name)
        stats = await self._sampler.latest()
        reasons = await self._admin.reasons(group=name)
        incidents = [one for one in self._sampler.incidents if one.group == name]
        mine = [(t.topic, g) for t in stats.topics for g in t.groups if g.group == name]
        audit = [
            entry for entry in await self._admin.audit() if entry.arguments.get("group") == name
        ]
        charts = {
            topic: await group_charts(self._sampler, topic, name, span)
            for topic, _ in mine[:_AUDIT_ROWS]
        }
        return render(
            "group.html",
            info=info,
            rows=mine[:MOST_ROWS],
            charts=charts,
            asked={"span": span},
            spans=spans(lambda span: f"?span={span}"),
            incidents=incidents,
            reasons={one.topic: one for one in reasons},
            audit=audit[:_AUDIT_ROWS],
            **self._frame,
        )

    async def messages(self, request: Request) -> Response:
        """What a group has not finished with, and why."""
        name = group_of(request)
        fields = asked(request, *MessageConditions.__annotations__, "after")
        given = {field: text_of(fields, field) for field in MessageConditions.__annotations__}
        chosen: Any = {field: text for field, text in given.items() if text}
        async with self._one:
            page = await self._admin.messages(
                name, after=fields.get("after"), count=PAGE_ROWS, **chosen
            )
        return render(
            "messages.html",
            group=name,
            states=STATES,
            asked=given,
            chosen=chosen,
            page=page,
            link=lambda after: f"?{urlencode(chosen | {'after': after})}",
            **self._frame,
        )

    async def dead(self, request: Request) -> Response:
        """The dead letters of a group: by fingerprint, or those of one fingerprint."""
        name, fields = group_of(request), asked(request, "fingerprint", "page")
        fingerprint, page = fingerprint_of(fields), page_of(fields)
        first = (page - 1) * PAGE_ROWS
        context, dead_letters = parts_of(self._admin).operations, list[DeadLetterRecord]()
        async with self._one:
            found: list[Cluster] = await self._perform(clusters(context, name))
            rows = [row for row in found if fingerprint in (None, row.fingerprint)]
            if fingerprint:
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
            page_link=lambda number: f"?{urlencode({'fingerprint': fingerprint, 'page': number})}",
            **self._frame,
        )

    async def search(self, request: Request) -> Response:
        """Messages with an id or a key, groups and topics with such a name."""
        wanted = text_of(asked(request, "q"), "q")
        with suppress(InvalidArgument, MessageNotFound):
            view = await self._find(check_message_id(wanted))
            return RedirectResponse(f"/message/{quote(view.id, safe='')}", 303)
        stats, ids, tagged = await self._sampler.latest(), list[str](), list[Any]()
        with suppress(InvalidArgument):
            async with self._one:
                ids = await self._admin.find(wanted)
                tagged = await self._tagged(wanted, stats)
        groups = dict.fromkeys(g.group for g in stats.groups if wanted.lower() in g.group.lower())
        topics = [t.topic for t in stats.topics if wanted.lower() in t.topic.lower()]
        return render(
            "search.html",
            wanted=wanted,
            ids=ids[:MOST_ROWS],
            tagged=tagged,
            groups=[*groups][:PAGE_ROWS],
            topics=topics[:PAGE_ROWS],
            **self._frame,
        )

    async def _tagged(self, tag: str, stats: Stats) -> list[tuple[str, MessagePage]]:
        """Some messages with this tag of the groups that have most to do."""
        held = Counter[str]()
        for g in stats.groups:
            held[g.group] += g.ready + g.retry + g.inflight + g.waiting_count
        found = []
        for group, count in held.most_common(_TAG_GROUPS):
            page = await self._admin.messages(group, tag=tag, count=_TAG_ROWS) if count else None
            found += [(group, page)] if page and page.messages else []
        return found

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
