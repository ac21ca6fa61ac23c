"""Python imports this at its start, where the folder is on its path: see applied.py."""

import os

if "RQRETRY_MUTATION" in os.environ:
    from tests.meta.mutation.applied import apply

    apply()
