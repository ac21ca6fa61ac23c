"""Testing what is built on rqretry: real scripts, a private server, and a clock that you move.

See docs/testing.md. The pytest plugin gives the fixtures `lab`, `lab_redis` and `lab_fakeredis`.
"""

from rqretry.testing.lab import Lab
from rqretry.testing.paths import Attempt, Step

__all__ = ["Attempt", "Lab", "Step"]
