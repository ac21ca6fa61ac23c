"""The actions of an operator: requested on one page, confirmed in a form, done by a POST.

Each goes through `admin`, which writes it to the audit record.
"""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from rqretry.client import AsyncClient
from rqretry.dashboard.access import Rights
from rqretry.dashboard.render import forbidden, not_found, render
from rqretry.dashboard.request_args import asked, choice_of, group_of, posted

_READ_ONLY = "This dashboard is read-only: start it with --operator."
_CHOICE = ("fingerprint", "id")
VERBS = ("pause", "resume", "redrive", "purge")


class Actions:
    """Verbs that change something; without operator rights each is refused."""

    def __init__(self, client: AsyncClient, rights: Rights) -> None:
        self._admin = client.admin
        self._rights = rights
        self._frame = rights.frame(client.settings.namespace)

    async def confirm(self, request: Request) -> Response:
        """Say what would happen, and ask."""
        verb, group = request.path_params["verb"], group_of(request)
        fields = asked(request, *_CHOICE)
        if verb not in VERBS:
            return not_found()
        if not self._rights.operator:
            return forbidden(_READ_ONLY)
        path = f"/act/{verb}/{group}"
        await self._admin.group(group)
        return render(
            "confirm.html",
            verb=verb,
            group=group,
            fields=fields,
            count=await self._count(verb, group, fields),
            path=path,
            token=self._rights.form_token(path),
            **self._frame,
        )

    async def act(self, request: Request) -> Response:
        """Do it, and go back to the group."""
        verb, group = request.path_params["verb"], group_of(request)
        if verb not in VERBS:
            return not_found()
        if not self._rights.operator:
            return forbidden(_READ_ONLY)
        fields = await posted(request, "token", "confirm", *_CHOICE)
        if not self._rights.good_form(f"/act/{verb}/{group}", fields.get("token", "")):
            return forbidden(
                "The form is not from this dashboard, or the dashboard was restarted since."
            )
        if fields.get("confirm") != (group if verb == "purge" else "yes"):
            return forbidden("Not confirmed: nothing was done.")
        await self._do(verb, group, fields)
        return RedirectResponse(f"/group/{group}", 303)

    async def _count(self, verb: str, group: str, fields: dict[str, str]) -> int | None:
        admin, chosen = self._admin, choice_of(fields)
        if verb == "redrive":
            return int(await admin.redrive(group, chosen, dry_run=True))
        if verb == "purge":
            return int(await admin.purge(group, chosen, dry_run=True))
        return None

    async def _do(self, verb: str, group: str, fields: dict[str, str]) -> None:
        admin = self._admin
        if verb == "pause":
            await admin.pause(group)
        elif verb == "resume":
            await admin.resume(group)
        elif verb == "redrive":
            await admin.redrive(group, choice_of(fields))
        else:
            await admin.purge(group, choice_of(fields))
