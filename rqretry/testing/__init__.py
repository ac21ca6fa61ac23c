"""Testing what is built on rqretry: real scripts, a private server, and a clock that you move.

See docs/testing.md. The pytest plugin gives the fixtures `lab`, `lab_redis` and `lab_fakeredis`;
pytest imports it at every start, so the names here are imported when they are first used.
"""

from rqretry.core.lazy_exports import attributes

__all__, __getattr__, __dir__ = attributes(__name__)
