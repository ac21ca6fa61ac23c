"""Before and after every page: who may ask, for which host, and what a browser may do with it."""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_WRONG = 10
"""Wrong tokens that one address may send in WRONG_FOR_S; then it is refused, whatever it sends."""
WRONG_FOR_S = 60
_MOST_ADDRESSES = 1024
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer a browser would send "Origin: null" with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Rights:
    """Who may see the pages, and who may act.

    Attributes:
        operator: Whether actions exist at all.
        token: The password that every request must have; None for none.
        hosts: Accepted names in the Host header, without port.
    """

    operator: bool = False
    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str] = LOOPBACK
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def frame(self, namespace: str) -> dict[str, object]:
        """The values that the frame of every page shows."""
        return {"namespace": namespace, "operator": self.operator}

    def form_token(self, path: str) -> str:
        """The token of a form that posts to this path; valid while this process runs."""
        return hmac.new(self.secret, path.encode(), hashlib.sha256).hexdigest()

    def good_form(self, path: str, token: str) -> bool:
        """Whether the token of a form is valid."""
        return hmac.compare_digest(self.form_token(path).encode(), token.encode())

    def admits(self, authorization: str) -> bool:
        """Whether an Authorization header (Basic, any user) has the token."""
        if self.token is None:
            return True
        scheme, _, encoded = authorization.partition(" ")
        try:
            decoded = base64.b64decode(encoded, validate=True) if scheme.lower() == "basic" else b""
        except (binascii.Error, ValueError):
            return False
        _, _, password = decoded.partition(b":")
        return hmac.compare_digest(password, self.token.encode())


class WrongTokens:
    """How many wrong tokens came from each address lately."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def too_many(self, address: str) -> bool:
        """Whether this address is refused for now."""
        count, until = self._counts.get(address, (0, 0.0))
        return count >= MOST_WRONG and time.monotonic() < until

    def add(self, address: str) -> None:
        """One more came from there."""
        now = time.monotonic()
        count, until = self._counts.pop(address, (0, 0.0))
        self._counts[address] = (count + 1, until) if now < until else (1, now + WRONG_FOR_S)
        if len(self._counts) > _MOST_ADDRESSES:
            del self._counts[next(iter(self._counts))]


class Guard:
    """An ASGI application around the pages; `close` ends what would not end by itself."""

    def __init__(self, app: ASGIApp, rights: Rights, close: Callable[[], None]) -> None:
        self._app = app
        self.close = close
        self._rights = rights
        self._wrong = WrongTokens()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reject the request, or pass it on; every response gets the headers."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if host_name(headers.getlist("host")) not in self._rights.hosts:
            return PlainTextResponse("this host is not served here: see --allow-host\n", 421)
        address, token = str((scope.get("client") or ("",))[0]), headers.get("authorization", "")
        if self._wrong.too_many(address):
            later = {"Retry-After": str(WRONG_FOR_S)}
            return PlainTextResponse("too many wrong tokens; try later\n", 429, later)
        if not self._rights.admits(token):
            if token:
                self._wrong.add(address)
            challenge = {"WWW-Authenticate": 'Basic realm="rqretry", charset="UTF-8"'}
            return PlainTextResponse("the token is needed as the password\n", 401, challenge)
        if not scope["path"].isprintable():
            return PlainTextResponse("control characters in the address\n", 400)
        if scope["method"] not in ("GET", "POST"):
            return PlainTextResponse("only GET and POST\n", 405, {"Allow": "GET, POST"})
        if scope["method"] == "POST" and not _same_origin(headers):
            return PlainTextResponse("a form of another site\n", 403)
        return None


def host_name(hosts: Iterable[str]) -> str | None:
    """The name in the one Host header, in lower case and without port; None if it has none."""
    listed = list(hosts)
    found = _HOST.fullmatch(listed[0]) if len(listed) == 1 else None
    return found[1].strip("[]").lower() if found else None


def _same_origin(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers["host"]
