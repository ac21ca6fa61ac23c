"""Python imports this at its start, where the folder is on its path: see applied.py."""

import os
import sys
import traceback

if "TESTS_MUTATION" in os.environ:
    from tests.meta.mutation.applied import apply

    try:
        apply()
    except Exception:  # noqa: BLE001 - Python would start without the change, and all tests pass
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(4)
