"""The actions of an operator: requested on one page, confirmed in a form, done by a POST.

Each goes through `admin`, which writes it to the audit record.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rqretry.admin.dead_letter_filter import DeadLetterFilter
from rqretry.client import AsyncClient
from rqretry.core.parts import parts_of
from rqretry.dashboard.access import Rights
from rqretry.dashboard.render import forbidden, not_found, render
from rqretry.dashboard.request_args import MANY, asked, choice_of, group_of, posted

_READ_ONLY = "This dashboard is read-only: start it with --operator."
_CHOICE = ("fingerprint", "chosen", MANY)
_SETTINGS = ("pause", "resume")
_MOVES = ("redrive", "purge", "promote", "dead_letter", "cancel")
_DELETES = ("purge", "cancel")
_UNFINISHED = ("promote", "dead_letter", "cancel")
"""About messages that are not dead, some by id."""
_WORDS = {"promote": "retry now", "dead_letter": "dead-letter"}
_PERIODIC = ("trigger", "pause_schedule", "resume_schedule")


class Actions:
    """Verbs that change something; without operator rights each is refused."""

    def __init__(self, client: AsyncClient, rights: Rights) -> None:
        self._admin = client.admin
        self._rights = rights
        self._frame = rights.frame(parts_of(client).settings.namespace)

    async def confirm(self, request: Request) -> Response:
        """Say what would happen, and ask."""
        verb, group = request.path_params["verb"], group_of(request)
        if refused := self._refusal(verb):
            return refused
        fields = asked(request, *_choice(verb))
        path = f"/act/{verb}/{group}"
        word = _WORDS.get(verb, verb.removesuffix("_schedule"))
        await (self._admin.schedule if verb in _PERIODIC else self._admin.group)(group)
        count = await self._do(verb, group, fields, dry_run=True)
        what = "message" if verb in _UNFINISHED else "dead letter"
        of = "schedule" if verb in _PERIODIC else "group" if count is None else f"{what}s of group"
        return render(
            "confirm.html",
            verb=verb,
            question=f"{word.capitalize()} {of} {group}?",
            word=word,
            fields=[(name, one) for name in fields for one in fields[name].split(" ")],
            count=count,
            what=what,
            deletes=verb in _DELETES,
            path=path,
            back=_page_of(verb, group),
            token=self._rights.form_token(path),
            **self._frame,
        )

    async def act(self, request: Request) -> Response:
        """Do it, and go back to where it was asked for."""
        verb, group = request.path_params["verb"], group_of(request)
        if refused := self._refusal(verb):
            return refused
        fields = await posted(request, "token", "confirm", *_choice(verb))
        if not self._rights.good_form(f"/act/{verb}/{group}", fields.get("token", "")):
            return forbidden(
                "The form is not from this dashboard, or the dashboard was restarted since."
            )
        if fields.get("confirm") != (group if verb in _DELETES else "yes"):
            return forbidden("Not confirmed: nothing was done.")
        await self._do(verb, group, fields, dry_run=False)
        return RedirectResponse(_page_of(verb, group), 303)

    def _refusal(self, verb: str) -> Response | None:
        if verb not in (*_SETTINGS, *_MOVES, *_PERIODIC):
            return not_found()
        return None if self._rights.operator else forbidden(_READ_ONLY)

    async def _do(
        self, verb: str, group: str, fields: dict[str, str], *, dry_run: bool
    ) -> int | None:
        """Do it, or count what it would do; None for what is not counted."""
        if verb == "cancel":
            return await self._cancel(group, choice_of(fields), dry_run=dry_run)
        method: Callable[..., Awaitable[Any]] = getattr(self._admin, verb)
        if verb in _MOVES:
            return int(await method(group, choice_of(fields), dry_run=dry_run))
        if not dry_run:
            await method(group)
        return None

    async def _cancel(self, group: str, chosen: DeadLetterFilter, *, dry_run: bool) -> int:
        """Purge those that wait for a retry, and those that are ready."""
        count = 0
        for state in ("waiting_retry", "ready"):
            found = await self._admin.purge(group, chosen, state=state, dry_run=True)
            if found and not dry_run:
                found = await self._admin.purge(group, chosen, state=state)
            count += found
        return count


def _choice(verb: str) -> tuple[str, ...]:
    return _CHOICE if verb in _MOVES else ()


def _page_of(verb: str, group: str) -> str:
    if verb in _PERIODIC:
        return "/cron"
    return f"/{'messages' if verb in _UNFINISHED else 'group'}/{group}"
