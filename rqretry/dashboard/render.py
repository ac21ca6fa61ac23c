"""Templates, which escape and cut every text from elsewhere; and errors as pages."""

import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from rqretry.admin.timeline import timing
from rqretry.cli.output import body_text, clean, date
from rqretry.core.durations import spell
from rqretry.core.errors import (
    GroupNotFound,
    InvalidArgument,
    MessageNotFound,
    RqretryError,
    ScheduleNotFound,
    StoreUnavailable,
    TopicNotFound,
)

SHOWN = 500
SHOWN_BODY = 4000

Page = Callable[[Request], Awaitable[Response]]

log = logging.getLogger("rqretry.dashboard")


_CAPITAL = re.compile(r"[A-Z]")


def _number(value: float) -> str:
    """With one decimal; below one, two, since a message a minute is not none."""
    text = f"{value:,.2f}" if value < 1 else f"{value:,.1f}"
    return text.rstrip("0").rstrip(".")


_TEMPLATES = Environment(
    loader=PackageLoader("rqretry.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "cut": lambda value: clean(value, SHOWN),
    "body": lambda value: clean(body_text(value), SHOWN_BODY),
    "date": lambda at_ms: date(at_ms) or "",
    "part": lambda text: quote(text, safe=""),
    "query": urlencode,
    "timing": timing,
    "spell": lambda seconds: spell(round(seconds)),
    "age": lambda seconds: "-" if seconds is None else " ".join(spell(round(seconds)).split()[:4]),
    "title": lambda name: _CAPITAL.sub(lambda one: f" {one[0].lower()}", name).strip().capitalize(),
    "words": lambda name: {"inflight": "in flight"}.get(name, name.replace("_", " ")),
    "number": lambda value: "-" if value is None else _number(value),
}


def compile_templates() -> None:
    """Once, and before somebody waits for a page."""
    for name in _TEMPLATES.list_templates():
        _TEMPLATES.get_template(name)


def render(name: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    """A page of a template."""
    return HTMLResponse(_TEMPLATES.get_template(name).render(**values), status)


def guarded(page: Page) -> Page:
    """The page, with every error as a page of its own."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except InvalidArgument as error:
            return _error_page(400, "Invalid request", str(error))
        except (GroupNotFound, MessageNotFound, ScheduleNotFound, TopicNotFound) as error:
            return _error_page(404, "Not found", str(error))
        except StoreUnavailable as error:
            log.warning("the dashboard cannot reach Redis: %s", error)
            return _error_page(503, "Redis does not answer", "Try again; the log has the reason.")
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except RqretryError as error:
            return _error_page(409, "Refused", str(error))
        except Exception:
            number = secrets.token_hex(8)
            log.exception("error %s in the dashboard", number)
            return _error_page(500, "Internal error", f"The log has it as error {number}.")

    return answer


def not_found() -> Response:
    """The page for an unknown address."""
    return _error_page(404, "Not found", "There is no such page.")


def forbidden(reason: str) -> Response:
    """For what these rights do not allow."""
    return _error_page(403, "Not allowed", reason)


def _error_page(status: int, title: str, text: str) -> HTMLResponse:
    return render("error.html", status, title=title, text=text)
