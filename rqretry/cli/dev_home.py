"""Where the server of `rqretry dev` lives: the same place at every start from the same folder."""

import os
import tempfile
from hashlib import sha256
from pathlib import Path

from rqretry.core.errors import ConfigError
from rqretry.core.settings import variable

_SHOWN = 20
"""Characters of the folder's name in the path, which must stay short for a socket."""
_LONGEST = 50
"""Bytes of the directory below which they are."""


def home_of(folder: str) -> Path:
    """A directory for the server of this folder, below one that only this user can enter.

    Raises:
        ConfigError: Somebody else has made that.
    """
    places = (variable("XDG_RUNTIME_DIR"), tempfile.gettempdir())
    fit = [p for p in places if p and len(os.fsencode(p)) <= _LONGEST and Path(p).is_dir()]
    own = Path(*fit[:1] or ["/tmp"]) / f"rqretry-{os.getuid()}"  # noqa: S108 - its owner is checked
    own.mkdir(mode=0o700, exist_ok=True)
    if own.stat().st_uid != os.getuid():
        raise ConfigError(f"{own} belongs to another user: remove it, or set XDG_RUNTIME_DIR")
    full = Path(folder).resolve()
    mark = sha256(bytes(full)).hexdigest()[:8]
    return own / f"{full.name[:_SHOWN]}-{mark}"
