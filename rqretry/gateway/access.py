"""Who may call: the `authorization` header with an access key and a signature."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from pathlib import Path

from rqretry.core.errors import ConfigError, show
from rqretry.gateway.codes import Code, Refused

_HEADER = re.compile(
    r"MQv2-HMAC-SHA1 Credential=([^,/\s]+)[^,\s]*, ?SignedHeaders=x-mq-date-time,"
    r" ?Signature=([0-9A-Fa-f]{40})"
)
_LEAST_SECRET = 8


class AccessKeys:
    """Access keys with their secrets; none at all admit everybody."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def __repr__(self) -> str:
        return f"<AccessKeys: {len(self._secrets)}>"

    @classmethod
    def read(cls, path: Path) -> "AccessKeys":
        """Those of a file: one `access_key secret` a line. Raises ConfigError."""
        found: dict[str, str] = {}
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            key, _, secret = line.strip().partition(" ")
            secret = secret.strip()
            if len(secret) < _LEAST_SECRET or not key.isascii() or "/" in key or "," in key:
                raise ConfigError(
                    f"line {number} of {show(str(path))} must be an access key (ASCII, without"
                    f" / and ,), a blank, and a secret of at least {_LEAST_SECRET} characters"
                )
            found[key] = secret
        if not found:
            raise ConfigError(f"{show(str(path))} holds no access key: write one with its secret")
        return cls(found)

    def check(self, metadata: Mapping[str, str]) -> None:
        """Raises Refused unless the request is signed with one of the keys."""
        if not self._secrets:
            return
        found = _HEADER.fullmatch(metadata.get("authorization", ""))
        if found is None:
            raise Refused(Code.UNAUTHORIZED, "the authorization header is missing or malformed")
        secret = self._secrets.get(found[1])
        signed = (secret or "").encode(), metadata.get("x-mq-date-time", "").encode()
        right = hmac.new(*signed, hashlib.sha1).hexdigest()  # the protocol names it
        if not hmac.compare_digest(right, found[2].lower()) or secret is None:
            raise Refused(Code.UNAUTHORIZED, "the access key or the signature is not valid")
